// SPDX-License-Identifier: Apache-2.0

package product

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"deviceshare/manifests/images/image"
)

// Written is one image in a layout.
type Written struct {
	Product Product
	Name    string  // with its tag
	Layout  string  // directory
	Digest  v1.Hash // of the index
	// Sizes are how much is downloaded for one architecture, in bytes.
	Sizes map[string]int64
}

func (w Written) String() string {
	text := fmt.Sprintf("%s@%s", w.Name, w.Digest)
	for _, p := range Platforms() {
		if size, ok := w.Sizes[p.Arch]; ok {
			text += fmt.Sprintf("  %s %.1f MB", p.Arch, float64(size)/1e6)
		}
	}
	return text
}

// WriteLayouts builds the images and writes each as an OCI image layout into a directory of its
// ID below dir. One that was written there of the same files is left as it is.
func (b Builder) WriteLayouts(ctx context.Context, dir string) ([]Written, error) {
	specs, err := b.Build(ctx)
	if err != nil {
		return nil, err
	}
	var written []Written
	for _, p := range b.listProducts() {
		w, err := writeLayouts(p, filepath.Join(dir, p.ID()), specs[p.ID()])
		if err != nil {
			return written, err
		}
		written = append(written, w)
	}
	return written, nil
}

func writeLayouts(p Product, dir string, specs []image.Spec) (Written, error) {
	name, mark := specs[0].Name, dir+".mark"
	now, err := hashOfContents(specs)
	if err != nil {
		return Written{}, fmt.Errorf("read what is in %s: %w", name, err)
	}
	if before, err := os.ReadFile(mark); err == nil && bytes.Equal(before, now) {
		if w, err := readLayout(p, name, dir); err == nil {
			return w, nil
		}
	}
	if err := os.Remove(mark); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Written{}, fmt.Errorf("write %s anew: %w", name, err)
	}
	index, err := image.BuildIndex(specs)
	if err != nil {
		return Written{}, err
	}
	if err := image.WriteLayout(dir, name, index); err != nil {
		return Written{}, err
	}
	if err := os.WriteFile(mark, now, 0o600); err != nil {
		return Written{}, fmt.Errorf("note what is in %s: %w", name, err)
	}
	return readLayout(p, name, dir)
}

// hashOfContents changes when an image would: it covers the description, each file that is taken
// from this machine, and this program, which makes the image of them. A file's time says nothing:
// `go build` touches what it leaves as it was. Compressing takes ten times as long as hashing.
func hashOfContents(specs []image.Spec) ([]byte, error) {
	text, err := json.Marshal(specs)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	files := []string{program}
	for _, s := range specs {
		for _, f := range s.Files {
			if f.Source != "" {
				files = append(files, f.Source)
			}
		}
	}
	all := sha256.New()
	_, _ = all.Write(text)
	for _, path := range files {
		sum, err := hashOf(path)
		if err != nil {
			return nil, err
		}
		_, _ = all.Write(sum)
	}
	return hex.AppendEncode(nil, all.Sum(nil)), nil
}

func hashOf(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	sum := sha256.New()
	_, err = io.Copy(sum, f)
	return sum.Sum(nil), err
}

func readLayout(p Product, name, dir string) (Written, error) {
	w := Written{Product: p, Name: name, Layout: dir, Sizes: map[string]int64{}}
	root, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return w, fmt.Errorf("read the layout of %s: %w", name, err)
	}
	top, err := root.IndexManifest()
	if err != nil {
		return w, fmt.Errorf("read the layout of %s: %w", name, err)
	}
	if len(top.Manifests) != 1 {
		return w, fmt.Errorf("read the layout of %s: it has %d indexes, want 1", name, len(top.Manifests))
	}
	w.Digest = top.Manifests[0].Digest
	index, err := root.ImageIndex(w.Digest)
	if err != nil {
		return w, fmt.Errorf("read the index of %s: %w", name, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return w, fmt.Errorf("read the index of %s: %w", name, err)
	}
	for _, d := range manifest.Manifests {
		img, err := index.Image(d.Digest)
		if err != nil {
			return w, fmt.Errorf("read the index of %s: %w", name, err)
		}
		if w.Sizes[d.Platform.Architecture], err = image.Size(img); err != nil {
			return w, fmt.Errorf("read the image %s: %w", name, err)
		}
	}
	return w, nil
}
