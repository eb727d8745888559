// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// readTar returns the entries of a tar file in order.
func readTar(t *testing.T, data []byte) (names []string, headers map[string]*tar.Header, contents map[string][]byte) {
	t.Helper()
	headers, contents = map[string]*tar.Header{}, map[string][]byte{}
	tr := tar.NewReader(bytes.NewReader(data))
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return names, headers, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		headers[h.Name], contents[h.Name] = h, text
	}
}

func TestLayerHasEveryParentOnceAndBeforeItsChildren(t *testing.T) {
	im := image{ref: "x:1", files: []imageFile{
		{path: "bin", link: "usr/bin"}, {path: "tmp/", mode: 0o1777}, {path: "usr/bin/a", text: "A", mode: 0o755},
		{path: "usr/bin/b", text: "B", mode: 0o644}, {path: "tmp/c", text: "C", mode: 0o600},
	}}
	var layer bytes.Buffer
	if err := im.writeLayer(&layer); err != nil {
		t.Fatal(err)
	}
	names, headers, contents := readTar(t, layer.Bytes())
	want := []string{"bin", "tmp/", "usr/", "usr/bin/", "usr/bin/a", "usr/bin/b", "tmp/c"}
	if !slices.Equal(names, want) {
		t.Errorf("entries %v, want %v", names, want)
	}
	if h := headers["bin"]; h.Typeflag != tar.TypeSymlink || h.Linkname != "usr/bin" {
		t.Errorf("bin is %+v, want a link to usr/bin", h)
	}
	if h := headers["tmp/"]; h.Typeflag != tar.TypeDir || h.Mode != 0o1777 {
		t.Errorf("tmp is %+v, want a sticky directory for everybody", h)
	}
	if string(contents["usr/bin/b"]) != "B" || headers["usr/bin/a"].Mode != 0o755 {
		t.Errorf("files have the wrong content or mode: %q, %o", contents["usr/bin/b"], headers["usr/bin/a"].Mode)
	}
}

func TestImageLayoutIsConsistentAndReproducible(t *testing.T) {
	im := image{ref: "deviceshare/test:1", entrypoint: []string{"/a"}, env: []string{"PATH=/usr/bin"},
		files: []imageFile{{path: "a", text: "A", mode: 0o755}}}
	var out [2][]byte
	for i := range out {
		path := filepath.Join(t.TempDir(), "image.tar")
		if err := im.writeFile(path); err != nil {
			t.Fatal(err)
		}
		out[i], _ = os.ReadFile(path)
	}
	if !bytes.Equal(out[0], out[1]) {
		t.Error("two builds of the same image differ")
	}
	_, _, files := readTar(t, out[0])
	var index, manifest struct {
		Manifests []descriptor
		Config    descriptor
		Layers    []descriptor
	}
	decode(t, files["index.json"], &index)
	if name := index.Manifests[0].Annotations["io.containerd.image.name"]; !strings.HasSuffix(name, "/deviceshare/test:1") {
		t.Errorf("the image is named %q", name)
	}
	decode(t, blob(t, files, index.Manifests[0]), &manifest)
	var config struct {
		Config struct{ Entrypoint, Env []string }
		Rootfs struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}
	decode(t, blob(t, files, manifest.Config), &config)
	blob(t, files, manifest.Layers[0])
	if !slices.Equal(config.Config.Entrypoint, im.entrypoint) || !slices.Equal(config.Config.Env, im.env) {
		t.Errorf("config is %+v", config.Config)
	}
	if !slices.Equal(config.Rootfs.DiffIDs, []string{manifest.Layers[0].Digest}) {
		t.Errorf("diff ids %v do not name the uncompressed layer %s", config.Rootfs.DiffIDs, manifest.Layers[0].Digest)
	}
}

// blob returns what a descriptor points to, after checking its digest and size.
func blob(t *testing.T, files map[string][]byte, d descriptor) []byte {
	t.Helper()
	sum := "sha256:"
	data, ok := files["blobs/sha256/"+d.Digest[len(sum):]]
	if !ok || int64(len(data)) != d.Size {
		t.Fatalf("blob %s: found %v, %d bytes, want %d", d.Digest, ok, len(data), d.Size)
	}
	h := sha256.Sum256(data)
	if got := sum + hex.EncodeToString(h[:]); got != d.Digest {
		t.Errorf("blob %s has the digest %s", d.Digest, got)
	}
	return data
}

func decode(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
}

func TestMissingSourceFileNamesItselfAndTheImage(t *testing.T) {
	im := image{ref: "x:1", files: []imageFile{{path: "a", source: "/does/not/exist"}}}
	err := im.writeFile(filepath.Join(t.TempDir(), "image.tar"))
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestProgramIsCollectedWithItsLoaderAndLibraries(t *testing.T) {
	sh, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Skip("no /bin/sh on this machine")
	}
	c := newCollector()
	if err := c.add("usr/bin/sh", sh); err != nil {
		t.Fatal(err)
	}
	var loader, libc bool
	for _, f := range c.files() {
		base := filepath.Base(f.path)
		loader = loader || (len(base) > 3 && base[:3] == "ld-")
		libc = libc || base == "libc.so.6"
	}
	if !loader || !libc {
		t.Errorf("no loader (%v) or no libc (%v) in %v", loader, libc, c.sources)
	}
	if err := c.library("libnosuchthing.so.9"); err == nil {
		t.Error("a library that does not exist was found")
	}
}

func TestHostPathsMoveBelowUsr(t *testing.T) {
	for in, want := range map[string]string{
		"/lib64/ld-linux-x86-64.so.2":         "usr/lib64/ld-linux-x86-64.so.2",
		"/lib/x86_64-linux-gnu/libc.so.6":     "usr/lib/x86_64-linux-gnu/libc.so.6",
		"/usr/lib/x86_64-linux-gnu/libm.so.6": "usr/lib/x86_64-linux-gnu/libm.so.6",
		"/usr/lib/../lib64/libgcc_s.so.1":     "usr/lib64/libgcc_s.so.1",
	} {
		if got := imagePath(in); got != want {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
	}
}

func TestLibraryPathIsSetOnlyOnHostsThatAreNotLaidOutLikeDebian(t *testing.T) {
	debian := &collector{dirs: map[string]bool{"/usr/lib/x86_64-linux-gnu": true}}
	if got := debian.unusualDirs(); got != nil {
		t.Errorf("on Debian: %v, want none", got)
	}
	fedora := &collector{dirs: map[string]bool{"/usr/lib64": true}}
	if got := fedora.unusualDirs(); !slices.Equal(got, []string{"/usr/lib64", "/usr/lib/x86_64-linux-gnu"}) {
		t.Errorf("elsewhere: %v, want the host's directory and the driver's", got)
	}
}
