// SPDX-License-Identifier: Apache-2.0

package image

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// Annotations of an index in a layout, by which tools find its name: `ctr images import` reads the
// first, skopeo and others the second, which is the tag alone.
const (
	annotationName = "io.containerd.image.name"
	annotationTag  = "org.opencontainers.image.ref.name"
)

// WriteLayout writes an index as an OCI image layout into dir, in place of what is there.
func WriteLayout(dir, name string, index v1.ImageIndex) error {
	unfinished := dir + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return fmt.Errorf("write image layout %s: %w", dir, err)
	}
	defer os.RemoveAll(unfinished)
	p, err := layout.Write(unfinished, empty.Index)
	if err != nil {
		return fmt.Errorf("write image layout %s: %w", dir, err)
	}
	tag := name[strings.LastIndex(name, ":")+1:]
	if err := p.AppendIndex(index, layout.WithAnnotations(map[string]string{annotationName: name, annotationTag: tag})); err != nil {
		return fmt.Errorf("write image layout %s: %w", dir, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("write image layout %s: %w", dir, err)
	}
	if err := os.Rename(unfinished, dir); err != nil {
		return fmt.Errorf("write image layout %s: %w", dir, err)
	}
	return nil
}

// WriteArchive packs an OCI image layout into one tar file. The same layout gives the same bytes.
func WriteArchive(archive, dir string) error {
	files, err := Tree(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(archive), 0o755); err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	out, err := os.CreateTemp(filepath.Dir(archive), filepath.Base(archive)+".new-")
	if err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	defer os.Remove(out.Name())
	err = WriteTar(out, files)
	if closed := out.Close(); err == nil {
		err = closed
	}
	if err == nil {
		err = os.Chmod(out.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(out.Name(), archive)
	}
	if err != nil {
		return fmt.Errorf("write image archive %s: %w", archive, err)
	}
	return nil
}

// Pack builds one image and writes it as an archive of an OCI image layout.
func Pack(archive string, s Spec) error {
	index, err := BuildIndex([]Spec{s})
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return fmt.Errorf("write image archive: %w", err)
	}
	defer os.RemoveAll(dir)
	layout := filepath.Join(dir, "layout")
	if err := WriteLayout(layout, s.Name, index); err != nil {
		return err
	}
	return WriteArchive(archive, layout)
}
