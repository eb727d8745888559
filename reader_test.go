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
	"slices"
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

// The node's rooms; docs/architecture.md says what each is for.
func TestTheDevicePluginHasItsNineRoomsAndTheCommandOnlyWires(t *testing.T) {
	rooms := []string{"agent", "cdi", "checkpoint", "cluster", "driver", "kubelet", "legacy", "metrics", "node"}
	entries, err := os.ReadDir("deviceplugin")
	if err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, e := range entries {
		if files, _ := filepath.Glob(filepath.Join("deviceplugin", e.Name(), "*.go")); len(files) > 0 {
			have = append(have, e.Name())
		}
	}
	if !slices.Equal(have, rooms) {
		t.Errorf("deviceplugin has %v, want %v", have, rooms)
	}
	files, err := filepath.Glob("cmd/deviceshare-device-plugin/*.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(f, "_test.go") {
			lines += strings.Count(string(text), "\n")
		}
	}
	if lines == 0 || lines > 400 {
		t.Errorf("the command has %d lines, want at most 400: what decides belongs into a room", lines)
	}
}
