// SPDX-License-Identifier: Apache-2.0

package deviceshare_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// The hard limits of the house rules. The usual sizes are half of them.
const (
	maxFunctionLines  = 80
	maxFileLines      = 500
	maxCommentColumns = 100 // a tab is 4
	licence           = "// SPDX-License-Identifier: Apache-2.0"
)

func TestEveryPackageHasADocComment(t *testing.T) {
	for _, p := range list(t) {
		if len(p.GoFiles) > 0 && strings.TrimSpace(p.Doc) == "" {
			t.Errorf("%s: no package comment; say what the package decides or does", p.ImportPath)
		}
	}
}

func TestGoFilesFollowTheHouseRules(t *testing.T) {
	n := 0
	for _, file := range goFiles(t) {
		n++
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range inspect(file, string(src)) {
			t.Error(problem)
		}
	}
	if n < 20 {
		t.Fatalf("only %d Go files found: the rules would guard nothing", n)
	}
}

func TestTheHouseRulesCatchViolations(t *testing.T) {
	long := strings.Repeat("\t_ = 0\n", maxFunctionLines)
	cases := map[string]string{
		"licence":                  "package x\n",
		"init":                     licence + "\npackage x\nfunc init() {}\n",
		"lines long":               licence + "\npackage x\nfunc f() {\n" + long + "}\n",
		"file has":                 licence + "\npackage x\n" + strings.Repeat("// x\n", maxFileLines),
		"is not a name of a thing": licence + "\npackage utils\n",
		"comment of line 2":        licence + "\n\t// " + strings.Repeat("x", maxCommentColumns-6) + "\npackage x\n",
	}
	for want, src := range cases {
		if got := inspect("x.go", src); !slices.ContainsFunc(got, func(p string) bool { return strings.Contains(p, want) }) {
			t.Errorf("no problem containing %q was found; got %q", want, got)
		}
	}
}

// goFiles lists the Go files of every module of the repository.
func goFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "build" || (d.Name() != "." && strings.HasPrefix(d.Name(), "."))) {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			files = append(files, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// inspect lists what is wrong with one file.
func inspect(name, src string) []string {
	var problems []string
	report := func(format string, args ...any) {
		problems = append(problems, name+": "+fmt.Sprintf(format, args...))
	}
	if !strings.HasPrefix(src, licence) {
		report("does not begin with the licence line %q", licence)
	}
	if n := strings.Count(src, "\n"); n > maxFileLines {
		report("file has %d lines, more than %d: split it by what is decided", n, maxFileLines)
	}
	for i, line := range strings.Split(src, "\n") {
		columns := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t")
		if columns > maxCommentColumns && strings.HasPrefix(strings.TrimSpace(line), "// ") {
			report("the comment of line %d is wider than %d columns", i+1, maxCommentColumns)
		}
	}
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, src, parser.ParseComments)
	if err != nil {
		report("does not parse: %v", err)
		return problems
	}
	if slices.Contains([]string{"utils", "util", "helpers", "common", "types", "misc"}, f.Name.Name) {
		report("package %s is not a name of a thing", f.Name.Name)
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if n := set.Position(d.End()).Line - set.Position(d.Pos()).Line; n > maxFunctionLines {
				report("function %s is %d lines long, more than %d", d.Name.Name, n, maxFunctionLines)
			}
			if d.Recv == nil && d.Name.Name == "init" {
				report("init function: register in a list that can be read, in the composition root")
			}
		}
	}
	return problems
}
