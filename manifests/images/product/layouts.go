// SPDX-License-Identifier: Apache-2.0

package product

import (
	"context"
	"fmt"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

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
// name below dir.
func (b Builder) WriteLayouts(ctx context.Context, dir string) ([]Written, error) {
	specs, err := b.Build(ctx)
	if err != nil {
		return nil, err
	}
	var written []Written
	for _, p := range Products() {
		w, err := write(p, filepath.Join(dir, p.Name), specs[p.Name])
		if err != nil {
			return written, err
		}
		written = append(written, w)
	}
	return written, nil
}

func write(p Product, dir string, specs []image.Spec) (Written, error) {
	index, err := image.BuildIndex(specs)
	if err != nil {
		return Written{}, err
	}
	w := Written{Product: p, Name: specs[0].Name, Layout: dir, Sizes: map[string]int64{}}
	if err := image.WriteLayout(dir, w.Name, index); err != nil {
		return w, err
	}
	if w.Digest, err = index.Digest(); err != nil {
		return w, fmt.Errorf("compute the digest of %s: %w", w.Name, err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return w, fmt.Errorf("read the index of %s: %w", w.Name, err)
	}
	for _, d := range manifest.Manifests {
		img, err := index.Image(d.Digest)
		if err != nil {
			return w, fmt.Errorf("read the index of %s: %w", w.Name, err)
		}
		if w.Sizes[d.Platform.Architecture], err = image.Size(img); err != nil {
			return w, fmt.Errorf("read the image %s: %w", w.Name, err)
		}
	}
	return w, nil
}
