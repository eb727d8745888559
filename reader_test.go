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

func TestEveryStepOfOnePodIsAFunction(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Follow one pod\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found {
		t.Fatal("docs/architecture.md has no section Follow one pod")
	}
	functions, steps := declared(t), 0
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, m := range regexp.MustCompile("`([A-Za-z.]+)`").FindAllStringSubmatch(cells[2], -1) {
			steps++
			if !functions[m[1]] {
				t.Errorf("docs/architecture.md names %s, which is not there", m[1])
			}
		}
	}
	if steps < 20 {
		t.Errorf("the section names %d functions only", steps)
	}
}
