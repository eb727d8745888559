// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const (
	module = "deviceshare"
	// copied is the module's name in the copy. Gremlins takes the module's name out of a package's
	// path wherever it stands, so that it finds no coverage for plugins/deviceshare/podstate.
	copied = "mutated"
	// apart begins the name of the folder of the package to be mutated. Gremlins also mutates the
	// packages below a folder; none is below this one. Gremlins finds the tests only if the name of
	// the folder ends with the package's.
	apart = "apart_"
)

// copyModule copies what the deciding packages and their tests read from root to work, and returns
// the folder that the package of dir has there. The copy differs from the original where gremlins
// would count wrongly: see copied, apart and coverCases.
func copyModule(root, work, dir string) (subject string, err error) {
	dir = path.Clean(filepath.ToSlash(dir))
	subject = setApart(dir)
	for _, part := range []string{"go.mod", "go.sum", "docs", "config", "view", "sharing", "deviceplugin", "plugins"} {
		err := filepath.WalkDir(filepath.Join(root, part), func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			name, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			src, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			name, src, err = rewrite(filepath.ToSlash(name), src, dir)
			if err != nil {
				return err
			}
			to := filepath.Join(work, name)
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return err
			}
			return os.WriteFile(to, src, 0o644)
		})
		if err != nil {
			return "", err
		}
	}
	return subject, nil
}

func setApart(dir string) string { return path.Join(path.Dir(dir), apart+path.Base(dir)) }

// rewrite returns the name and the content of a file in the copy.
func rewrite(name string, src []byte, dir string) (string, []byte, error) {
	if name == "go.mod" {
		return name, bytes.Replace(src, []byte("module "+module), []byte("module "+copied), 1), nil
	}
	own := path.Dir(name) == dir
	if own || strings.HasPrefix(name, dir+"/testdata/") {
		name = setApart(dir) + strings.TrimPrefix(name, dir)
	}
	if path.Ext(name) != ".go" {
		return name, src, nil
	}
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
	if err != nil {
		return "", nil, fmt.Errorf("parse: %w", err)
	}
	if found := strings.TrimSuffix(file.Name.Name, "_test"); own && found != path.Base(dir) {
		return "", nil, fmt.Errorf("%s is of package %s: gremlins would not find the tests, and take every mutant as noticed", name, found)
	}
	edits := renameImports(file, dir)
	if own && !strings.HasSuffix(name, "_test.go") {
		edits = append(edits, coverCases(file)...)
	}
	return name, apply(src, edits), nil
}

// edit puts text in place of the bytes from start to end.
type edit struct {
	start, end token.Pos
	text       string
}

func apply(src []byte, edits []edit) []byte {
	slices.SortStableFunc(edits, func(a, b edit) int { return int(a.start - b.start) })
	var out []byte
	at := 0
	for _, e := range edits {
		out = append(out, src[at:e.start-1]...)
		out = append(out, e.text...)
		at = int(e.end) - 1
	}
	return append(out, src[at:]...)
}

func renameImports(file *ast.File, dir string) []edit {
	var edits []edit
	for _, i := range file.Imports {
		imported, ok := strings.CutPrefix(i.Path.Value, `"`+module+"/")
		if !ok {
			continue
		}
		if imported == dir+`"` {
			imported = setApart(dir) + `"`
		}
		edits = append(edits, edit{i.Path.Pos(), i.Path.End(), `"` + copied + "/" + imported})
	}
	return edits
}

// coverCases makes a function of each condition of a `case`: the coverage that go test measures
// leaves such conditions out, so that gremlins takes them for never run. Lines stay what they are.
func coverCases(file *ast.File) []edit {
	var edits []edit
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.SwitchStmt)
		if !ok || s.Tag != nil {
			return true
		}
		for _, clause := range s.Body.List {
			for _, condition := range clause.(*ast.CaseClause).List {
				edits = append(edits,
					edit{condition.Pos(), condition.Pos(), "func() bool { return "}, edit{condition.End(), condition.End(), " }()"})
			}
		}
		return true
	})
	return edits
}
