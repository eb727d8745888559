// SPDX-License-Identifier: Apache-2.0

package product

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// most is the largest download of an image for one architecture, in bytes.
var most = map[string]int64{"scheduler": 60e6, "webhook": 60e6, "view": 60e6, "device-plugin": 80e6}

// TestBuiltImages builds the images for the architectures that DEVICESHARE_IMAGES lists, and looks
// at them.
func TestBuiltImages(t *testing.T) {
	list := os.Getenv("DEVICESHARE_IMAGES")
	if list == "" {
		t.Skip("DEVICESHARE_IMAGES names no architectures (make test-images)")
	}
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is missing: the device plugin's base is made of Debian packages, on Debian or Ubuntu only", tool)
		}
	}
	platforms, err := ParsePlatforms(list)
	if err != nil {
		t.Fatal(err)
	}
	repo, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	b := Builder{Repo: repo, Work: filepath.Join(repo, ".sandbox/images/work"), Platforms: platforms, Version: "v0.1.0", Revision: "test",
		Progress: func(line string) { t.Log(line) }}
	if !testing.Short() {
		b.FIPS = "v1.0.0"
	}
	written, err := b.WriteLayouts(context.Background(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range written {
		t.Log(w)
		t.Run(w.Product.ID()+" is small", func(t *testing.T) { requireSmall(t, w.Product.Name, w.Sizes) })
		for arch, img := range images(t, w) {
			t.Run(w.Product.ID()+" for "+arch, func(t *testing.T) { inspect(t, w.Product, arch, img) })
		}
	}
	if !testing.Short() {
		t.Run("built elsewhere", func(t *testing.T) { requireReproducible(t, b, written) })
	}
}

func requireSmall(t *testing.T, name string, sizes map[string]int64) {
	for arch, size := range sizes {
		if size > most[name] || size < 1e6 {
			t.Errorf("for %s %d bytes are downloaded, want at most %d", arch, size, most[name])
		}
	}
}

// images returns the images of a layout by their architecture, after every digest in it was
// checked.
func images(t *testing.T, w Written) map[string]v1.Image {
	t.Helper()
	root, err := layout.ImageIndexFromPath(w.Layout)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(root); err != nil {
		t.Errorf("layout %s: %v", w.Layout, err)
	}
	index, err := root.ImageIndex(w.Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]v1.Image{}
	for _, d := range manifest.Manifests {
		if all[d.Platform.Architecture], err = index.Image(d.Digest); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// inspect looks at one image: its files, and whether its program starts among them.
func inspect(t *testing.T, p Product, arch string, img v1.Image) {
	root := unpack(t, img)
	requireComplete(t, root, arch)
	for place, file := range p.listOwnFiles() {
		if filepath.Base(filepath.Dir(file)) == programDir(p.FIPS) {
			requireModule(t, filepath.Join(root, place), p.FIPS)
		}
	}
	if entries, err := os.ReadDir(root); !p.HasBase() && (err != nil || len(entries) != 1) {
		t.Errorf("the image holds %v (%v), want its program only", entries, err)
	}
	config, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	requireStarts(t, root, arch, p, config.Config.Entrypoint[0])
	if p.HasBase() {
		requireNoOtherProgram(t, root)
		requireLooksForLibraries(t, root, arch)
		requireStartsDaemons(t, root, arch)
	}
}

// unpack writes the files of an image into a directory.
func unpack(t *testing.T, img v1.Image) string {
	t.Helper()
	files := mutate.Extract(img)
	defer files.Close()
	dir := t.TempDir()
	cmd := exec.Command("tar", "-x", "-C", dir, "-f", "-")
	cmd.Stdin = files
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("unpack the image: %v\n%s", err, out)
	}
	return dir
}

// requireReproducible builds the images in a copy of the working copy at another place.
func requireReproducible(t *testing.T, b Builder, want []Written) {
	copied := filepath.Join(t.TempDir(), "elsewhere")
	script := `mkdir -p "$1" && git -C "$0" ls-files -z --cached --others --exclude-standard | (cd "$0" && xargs -0 ls -d 2>/dev/null) | tar -c -C "$0" -T - | tar -x -C "$1"`
	if out, err := exec.Command("bash", "-c", script, b.Repo, copied).CombinedOutput(); err != nil {
		t.Fatalf("copy the working copy: %v\n%s", err, out)
	}
	work := filepath.Join(t.TempDir(), "work")
	for _, p := range b.Platforms { // Debian may have published something in between
		base := b.BaseDir(p.Arch)
		if out, err := exec.Command("bash", "-c", `mkdir -p "$1" && cp -a "$0" "$1" && touch "$1/base"`, base, filepath.Join(work, p.Arch)).CombinedOutput(); err != nil {
			t.Fatalf("copy the base: %v\n%s", err, out)
		}
	}
	b.Repo, b.Work = copied, work
	got, err := b.WriteLayouts(context.Background(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if got[i].Digest != want[i].Digest {
			t.Errorf("%s has the digest %s when built elsewhere, and %s", want[i].Name, got[i].Digest, want[i].Digest)
		}
	}
}
