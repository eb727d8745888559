// SPDX-License-Identifier: Apache-2.0

package product

import (
	"encoding/json"
	"maps"
	"os"
	"path"
	"strings"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// stage is what the Dockerfile says of one image.
type stage struct {
	from, user string
	entrypoint []string
	labels     map[string]string
	files      map[string]string // place in the image to file below /out
	hasBase    bool
}

// stages reads the Dockerfile; ARG values are their defaults.
func stages(t *testing.T) map[string]*stage {
	t.Helper()
	f, err := os.Open("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	parsed, err := parser.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*stage{}
	var s *stage
	var args []string
	for _, n := range parsed.AST.Children {
		var words []string
		for w := n.Next; w != nil; w = w.Next {
			words = append(words, w.Value)
		}
		switch strings.ToUpper(n.Value) {
		case "FROM":
			s = &stage{from: words[0], labels: map[string]string{}, files: map[string]string{}}
			all[words[2]], args = s, nil
		case "ARG":
			name, value, _ := strings.Cut(words[0], "=")
			args = append(args, "$"+name, value)
		case "LABEL":
			s.labels[words[0]] = strings.NewReplacer(args...).Replace(strings.Trim(words[1], `"`))
		case "USER":
			s.user = words[0]
		case "ENTRYPOINT":
			if !n.Attributes["json"] {
				t.Errorf("line %d: an entry point without brackets needs a shell", n.StartLine)
			}
			s.entrypoint = words
		case "COPY":
			s.copies(n.Flags, words)
		}
	}
	return all
}

// copies takes a line COPY --from=build /out/x /out/y /place/.
func (s *stage) copies(flags, words []string) {
	if len(flags) != 1 || flags[0] != "--from=build" {
		return
	}
	dir := words[len(words)-1]
	for _, source := range words[:len(words)-1] {
		if source == "/out/base/" && dir == "/" {
			s.hasBase = true
			continue
		}
		s.files[strings.TrimPrefix(path.Join(dir, path.Base(source)), "/")] = strings.TrimPrefix(source, "/out/")
	}
}

func TestTheDockerfileMakesTheSameImages(t *testing.T) {
	all := stages(t)
	for _, p := range Products() {
		s := all[p.Name]
		if s == nil {
			t.Errorf("the Dockerfile has no stage %s", p.Name)
			continue
		}
		if s.from != "scratch" || s.hasBase != p.isDynamic {
			t.Errorf("%s: made from %s, with the base: %v", p.Name, s.from, s.hasBase)
		}
		if s.user != p.User {
			t.Errorf("%s: user %q, want %q", p.Name, s.user, p.User)
		}
		if len(s.entrypoint) != 1 || s.entrypoint[0] != p.Place {
			t.Errorf("%s: entry point %q, want %q", p.Name, s.entrypoint, p.Place)
		}
		if !maps.Equal(s.files, p.OwnFiles()) {
			t.Errorf("%s: files %v, want %v", p.Name, s.files, p.OwnFiles())
		}
		if want := p.Labels("v0.1.0", "unknown"); !maps.Equal(s.labels, want) {
			got, _ := json.Marshal(s.labels)
			t.Errorf("%s: labels %s, want %v", p.Name, got, want)
		}
	}
	if len(all) != len(Products())+1 { // and the one that builds
		t.Errorf("the Dockerfile has %d stages, want one per image and one that builds", len(all))
	}
}
