// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// untar returns the entries of a tar file in order.
func untar(t *testing.T, data []byte) (names []string, headers map[string]*tar.Header) {
	t.Helper()
	headers = map[string]*tar.Header{}
	for tr := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return names, headers
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		headers[h.Name] = h
	}
}

func TestALayerIsSortedAndHasEveryDirectoryOnce(t *testing.T) {
	var out bytes.Buffer
	err := WriteTar(&out, []File{
		{Path: "usr/bin/b", Text: "B", Mode: 0o644}, {Path: "bin", Link: "usr/bin"}, {Path: "tmp/", Mode: 0o1777},
		{Path: "usr/bin/a", Text: "A", Mode: 0o755}, {Path: "tmp/c", Text: "C", Mode: 0o600},
	})
	if err != nil {
		t.Fatal(err)
	}
	names, headers := untar(t, out.Bytes())
	want := []string{"bin", "tmp/", "tmp/c", "usr/", "usr/bin/", "usr/bin/a", "usr/bin/b"}
	if !slices.Equal(names, want) {
		t.Errorf("entries %v, want %v", names, want)
	}
	if h := headers["bin"]; h.Typeflag != tar.TypeSymlink || h.Linkname != "usr/bin" {
		t.Errorf("bin is %+v, want a link to usr/bin", h)
	}
	if h := headers["tmp/"]; h.Typeflag != tar.TypeDir || h.Mode != 0o1777 {
		t.Errorf("tmp is %+v, want a sticky directory for everybody", h)
	}
	for _, h := range headers {
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.ModTime.Unix() != 0 {
			t.Errorf("%s has owner %d:%d %q and time %v: it would differ between machines", h.Name, h.Uid, h.Gid, h.Uname, h.ModTime)
		}
	}
}

func TestFilesThatAreNoTreeAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		files []File
		want  string
	}{
		"the same twice":       {[]File{{Path: "a"}, {Path: "a"}}, "twice"},
		"file and directory":   {[]File{{Path: "a/"}, {Path: "a"}}, "twice"},
		"below a file":         {[]File{{Path: "a"}, {Path: "a/b"}}, "no directory"},
		"below a link":         {[]File{{Path: "lib", Link: "usr/lib"}, {Path: "lib/x"}}, "no directory"},
		"outside":              {[]File{{Path: "../a"}}, "below the root"},
		"absolute":             {[]File{{Path: "/a"}}, "below the root"},
		"not clean":            {[]File{{Path: "a//b"}}, "below the root"},
		"no name":              {[]File{{Path: ""}}, "below the root"},
		"a source that is not": {[]File{{Path: "a", Source: "/does/not/exist"}}, "/does/not/exist"},
		"a directory of text":  {[]File{{Path: "a/", Text: "x"}}, "has content"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Build(Spec{Name: "x:1", Architecture: "amd64", Files: tt.files}); err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "x:1") {
				t.Errorf("got %v, want an error with %q and the image's name", err, tt.want)
			}
		})
	}
}

func TestDescriptionsThatLackSomethingAreRefused(t *testing.T) {
	for want, spoil := range map[string]func(*Spec){
		"no tag":          func(s *Spec) { s.Name = "registry:5000/deviceshare/test" },
		"no architecture": func(s *Spec) { s.Architecture = "" },
		"no files":        func(s *Spec) { s.Files = nil },
	} {
		s := example()[0]
		spoil(&s)
		if _, err := Build(s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func example() []Spec {
	var specs []Spec
	for _, arch := range []string{"amd64", "arm64"} {
		specs = append(specs, Spec{Name: "registry/deviceshare/test:1", Architecture: arch, Entrypoint: []string{"/a"}, Env: []string{"PATH=/usr/bin"},
			User: "65532:65532", Labels: map[string]string{"k": "v"}, Files: []File{{Path: "a", Text: arch, Mode: 0o755}}})
	}
	return specs
}

func TestALayoutIsValidAndSaysWhatWasDescribed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "layout")
	for range 2 { // the second replaces the first
		index, err := BuildIndex(example())
		if err != nil {
			t.Fatal(err)
		}
		if err := WriteLayout(dir, example()[0].Name, index); err != nil {
			t.Fatal(err)
		}
	}
	root, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(root); err != nil {
		t.Error(err)
	}
	manifest, err := root.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations[annotationName] != example()[0].Name ||
		manifest.Manifests[0].Annotations[annotationTag] != "1" {
		t.Fatalf("the layout lists %+v (%v)", manifest, err)
	}
	index, err := root.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	images, err := index.IndexManifest()
	if err != nil || len(images.Manifests) != 2 {
		t.Fatalf("the index lists %+v (%v)", images, err)
	}
	for i, want := range example() {
		requireConfig(t, index, images.Manifests[i], want)
	}
}

func requireConfig(t *testing.T, index v1.ImageIndex, d v1.Descriptor, want Spec) {
	t.Helper()
	img, err := index.Image(d.Digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config
	if d.Platform.Architecture != want.Architecture || config.Architecture != want.Architecture || config.OS != "linux" ||
		!slices.Equal(c.Entrypoint, want.Entrypoint) || !slices.Equal(c.Env, want.Env) || c.User != want.User || c.Labels["k"] != "v" {
		t.Errorf("%s is %+v", want.Architecture, config)
	}
	if size, err := Size(img); err != nil || size < 50 || size > 2000 {
		t.Errorf("%s has %d bytes (%v)", want.Architecture, size, err)
	}
}

func TestTheSameImageIsTheSameArchive(t *testing.T) {
	var archives [2][]byte
	for i := range archives {
		path := filepath.Join(t.TempDir(), "sub", "image.tar")
		if err := Pack(path, example()[0]); err != nil {
			t.Fatal(err)
		}
		var err error
		if archives[i], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two builds of the same image differ")
	}
	if names, _ := untar(t, archives[0]); !slices.Contains(names, "oci-layout") || !slices.Contains(names, "index.json") {
		t.Errorf("the archive holds %v", names)
	}
}

func TestATreeKeepsLinksAndTheRightToExecute(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"d/run": 0o4755, "d/text": 0o600} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(name), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("d/run", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	files, err := Tree(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []File{{Path: "d/", Mode: 0o755}, {Path: "d/run", Source: filepath.Join(dir, "d/run"), Mode: 0o755},
		{Path: "d/text", Source: filepath.Join(dir, "d/text"), Mode: 0o644}, {Path: "link", Link: "d/run"}}
	if !slices.Equal(files, want) {
		t.Errorf("got %+v, want %+v", files, want)
	}
}
