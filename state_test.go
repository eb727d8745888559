// SPDX-License-Identifier: Apache-2.0

package deviceshare_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// A package-level variable is a constant in disguise (a table, a pattern, a
// sentinel error), or it is state that two tests or two clusters would share.
func TestNoPackageHasMutableState(t *testing.T) {
	packages := map[string][]*ast.File{}
	set := token.NewFileSet()
	for _, file := range goFiles(t) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		packages[filepath.Dir(file)] = append(packages[filepath.Dir(file)], f)
	}
	for dir, files := range packages {
		for _, name := range mutableState(files) {
			t.Errorf("%s: package-level mutable state %s: pass it down as a value", dir, name)
		}
	}
}

func TestMutableStateIsRecognised(t *testing.T) {
	cases := map[string]struct {
		src  string
		want int
	}{
		"a table that is only read":      {"var t = []int{1}\nfunc f() int { return t[0] }", 0},
		"a sentinel error":               {"var e = errors.New(\"x\")", 0},
		"a compile-time assertion":       {"var _ I = (*T)(nil)", 0},
		"an embedded file":               {"//go:embed x\nvar x string", 0},
		"a local variable of that name":  {"var t = []int{1}\nfunc f() { t := 2; t = 3; _ = t }", 0},
		"a cache that is filled":         {"var c = map[string]int{}\nfunc f() { c[\"a\"] = 1 }", 1},
		"a counter":                      {"var n = 0\nfunc f() { n++ }", 1},
		"a variable without a value":     {"var once sync.Once", 1},
		"a pointer handed out":           {"var v = T{}\nfunc f() *T { return &v }", 1},
		"a value made at start":          {"var client = connect()", 1},
		"an entry deleted from a table":  {"var t = map[int]int{}\nfunc f() { delete(t, 1) }", 1},
		"a field that is assigned":       {"var v = T{}\nfunc f() { v.x = 1 }", 1},
		"several in one declaration":     {"var (\n a sync.Mutex\n b int\n)", 2},
		"a table written in a closure":   {"var t = []int{1}\nfunc f() { func() { t = nil }() }", 1},
		"a compiled pattern":             {"var p = regexp.MustCompile(\"x\")", 0},
		"a function used as a constant":  {"var f = strings.ToLower", 0},
		"a table swapped by parallel :=": {"var a, b = 1, 2\nfunc f() { a, b = b, a }", 2},
	}
	for name, c := range cases {
		f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+c.src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		if got := mutableState([]*ast.File{f}); len(got) != c.want {
			t.Errorf("%s: found %v, want %d", name, got, c.want)
		}
	}
}

// mutableState names the package-level variables of a package that are written
// after they were declared, or that exist to be.
func mutableState(files []*ast.File) []string {
	declared := map[string]*ast.ValueSpec{}
	var found []string
	for _, f := range files {
		for _, d := range f.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR || embeds(g) {
				continue
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				for i, id := range v.Names {
					if id.Name == "_" {
						continue
					}
					if i >= len(v.Values) || !constant(v.Values[i]) {
						found = append(found, id.Name)
						continue
					}
					declared[id.Name] = v
				}
			}
		}
	}
	written := map[string]bool{}
	for _, f := range files {
		ast.Inspect(f, func(n ast.Node) bool {
			for _, id := range writes(n) {
				spec, ok := declared[id.Name]
				// The parser resolves names within a file: a local one has an object.
				if ok && !written[id.Name] && (id.Obj == nil || id.Obj.Decl == spec) {
					written[id.Name] = true
					found = append(found, id.Name)
				}
			}
			return true
		})
	}
	return found
}

// writes returns the variables a node changes, or lets others change.
func writes(n ast.Node) []*ast.Ident {
	var targets []ast.Expr
	switch n := n.(type) {
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			targets = n.Lhs
		}
	case *ast.IncDecStmt:
		targets = []ast.Expr{n.X}
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			targets = []ast.Expr{n.X}
		}
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.Ident); ok && (f.Name == "delete" || f.Name == "clear") {
			targets = n.Args[:1]
		}
	}
	var ids []*ast.Ident
	for _, e := range targets {
		if id := root(e); id != nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// root is the variable at the left end of a.b[c].d.
func root(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.SelectorExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		default:
			return nil
		}
	}
}

// embeds reports whether the declaration is filled by the compiler from a file.
func embeds(d *ast.GenDecl) bool {
	if d.Doc == nil {
		return false
	}
	for _, c := range d.Doc.List {
		if strings.HasPrefix(c.Text, "//go:embed") {
			return true
		}
	}
	return false
}

// constant reports whether a value is the same whenever it is made: a literal, a
// name, or one of the calls that only compile or wrap one.
func constant(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return true
	}
	if _, conversion := call.Fun.(*ast.ArrayType); conversion {
		return true
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return false
	}
	switch x.Name + "." + sel.Sel.Name {
	case "errors.New", "fmt.Errorf", "regexp.MustCompile", "strings.NewReplacer":
		return true
	}
	return false
}
