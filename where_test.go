// SPDX-License-Identifier: Apache-2.0

package deviceshare_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// declared is what the repository's product code declares, as package.Function,
// package.Type.Method, package.Type and package.Constant.
func declared(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != "." && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			for _, name := range namesOf(decl) {
				all[file.Name.Name+"."+name] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// namesOf returns what a declaration is called, methods with their type.
func namesOf(decl ast.Decl) []string {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			return []string{d.Name.Name}
		}
		typ := d.Recv.List[0].Type
		if star, ok := typ.(*ast.StarExpr); ok {
			typ = star.X
		}
		if name, ok := typ.(*ast.Ident); ok {
			return []string{name.Name + "." + d.Name.Name}
		}
	case *ast.GenDecl:
		var names []string
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				for _, name := range s.Names {
					names = append(names, name.Name)
				}
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
				names = append(names, methodsOf(s)...)
			}
		}
		return names
	}
	return nil
}

// methodsOf returns the methods that an interface asks for.
func methodsOf(s *ast.TypeSpec) []string {
	i, ok := s.Type.(*ast.InterfaceType)
	if !ok {
		return nil
	}
	var names []string
	for _, m := range i.Methods.List {
		for _, method := range m.Names {
			names = append(names, s.Name.Name+"."+method.Name)
		}
	}
	return names
}

// rowsOf returns the cells of the rows of the first table behind a heading of a page, without its
// head.
func rowsOf(t *testing.T, page, heading string) [][]string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatalf("%s has no section %s", page, heading)
	}
	var rows [][]string
	for line := range strings.Lines(section) {
		if cells := strings.Split(line, "|"); len(cells) >= 4 {
			rows = append(rows, cells)
		}
	}
	return rows[min(2, len(rows)):]
}

var inCode = regexp.MustCompile("`([^`]+)`")

func TestEveryStepOfOnePodIsAFunction(t *testing.T) {
	functions, steps := declared(t), 0
	for _, cells := range rowsOf(t, "docs/architecture.md", "Follow one pod") {
		for _, m := range regexp.MustCompile("`([A-Za-z.]+)`").FindAllStringSubmatch(cells[2], -1) {
			steps++
			if !functions[m[1]] {
				t.Errorf("docs/architecture.md names %s, which is not there", m[1])
			}
		}
	}
	if steps < 15 {
		t.Errorf("the section names %d functions only", steps)
	}
}

func TestWhatAPageSaysToChangeIsThere(t *testing.T) {
	rows := rowsOf(t, "docs/develop.md", "Where do I change ...")
	for _, cells := range rows {
		file := ""
		for _, m := range inCode.FindAllStringSubmatch(cells[2], -1) {
			if strings.Contains(m[1], "/") {
				file = m[1]
				if _, err := os.Stat(file); err != nil {
					t.Errorf("docs/develop.md: %v", err)
				}
				continue
			}
			text, err := os.ReadFile(file)
			name := m[1][strings.LastIndex(m[1], ".")+1:]
			if err != nil || !regexp.MustCompile(`(?m)^(func|type|void|static|int)\b.*\b`+regexp.QuoteMeta(name)+`\b`).Match(text) {
				t.Errorf("docs/develop.md: %s has no %s (%v)", file, m[1], err)
			}
		}
	}
	if len(rows) < 10 {
		t.Errorf("the section has %d rows only", len(rows))
	}
}
