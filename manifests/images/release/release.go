// SPDX-License-Identifier: Apache-2.0

// Package release writes all that belongs to a release of one version: the images, the plugin of
// kubectl, the chart, the plain manifest, what the images are made of, and the checksums of these
// files; with a key also their signature and where they come from.
package release

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"deviceshare/manifests/images/image"
	"deviceshare/manifests/images/product"
)

// versionForm is that of Go and Helm: semantic versioning with a v before it. A plus sign is left
// out, because the tag of an image cannot have it.
var versionForm = regexp.MustCompile(`^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z][0-9A-Za-z.-]*)?$`)

func checkVersion(version string) error {
	if !versionForm.MatchString(version) {
		return fmt.Errorf("version %q: want a semantic version such as v0.2.0 or v0.2.0-rc.1", version)
	}
	return nil
}

// Options are what a release says besides what is built.
type Options struct {
	// Downloads is the address below which people will find the files; empty if it is not known.
	Downloads string
	// Created is the time that the list of contents names.
	Created time.Time
	// Seal is who signs the release; nil leaves it unsigned.
	Seal *Seal
}

// Make builds the images and writes the release into dir, in place of what is there. It returns the
// names of the files.
func Make(ctx context.Context, b product.Builder, dir string, o Options) ([]string, error) {
	if err := checkVersion(b.Version); err != nil {
		return nil, err
	}
	unfinished := dir + ".new"
	if err := os.RemoveAll(unfinished); err != nil {
		return nil, fmt.Errorf("write the release: %w", err)
	}
	defer os.RemoveAll(unfinished)
	if err := os.MkdirAll(unfinished, 0o755); err != nil {
		return nil, fmt.Errorf("write the release: %w", err)
	}
	names, err := writeFiles(ctx, b, unfinished, o)
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, fmt.Errorf("write the release: %w", err)
	}
	if err := os.Rename(unfinished, dir); err != nil {
		return nil, fmt.Errorf("write the release: %w", err)
	}
	return names, nil
}

func writeFiles(ctx context.Context, b product.Builder, dir string, o Options) ([]string, error) {
	layouts, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, fmt.Errorf("write the release: %w", err)
	}
	defer os.RemoveAll(layouts)
	written, err := b.WriteLayouts(ctx, layouts)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, w := range written {
		b.Progress(w.String())
		name := archiveName(w.Product, b.Version)
		if err := image.WriteArchive(filepath.Join(dir, name), w.Layout); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	if err := b.BuildPlugins(ctx); err != nil {
		return nil, err
	}
	plugins, err := writePlugins(b, dir, o.Downloads)
	if err != nil {
		return nil, err
	}
	names = append(names, plugins...)
	source := manifests{dir: filepath.Join(b.Repo, "manifests"), version: b.Version}
	steps := []struct {
		name  string
		write func() ([]byte, error)
	}{
		{fmt.Sprintf("deviceshare-%s.tgz", strings.TrimPrefix(b.Version, "v")), source.packChart},
		{fmt.Sprintf("deviceshare-%s.yaml", b.Version), source.renderPlain},
		{fmt.Sprintf("deviceshare-%s.spdx.json", b.Version), func() ([]byte, error) { return spdxDocument(b, written, o.Created) }},
		{"images.txt", func() ([]byte, error) { return listImages(written, b.Version), nil }},
	}
	for _, s := range steps {
		data, err := s.write()
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, s.name), data, 0o644); err != nil {
			return nil, fmt.Errorf("write the release: %w", err)
		}
		names = append(names, s.name)
	}
	if err := writeSums(dir, names); err != nil {
		return nil, err
	}
	names = append(names, sumsFile)
	if o.Seal == nil {
		return names, nil
	}
	signed, err := sealRelease(b, dir, o, written)
	return append(names, signed...), err
}

func archiveName(p product.Product, version string) string {
	return fmt.Sprintf("deviceshare-%s-%s.oci.tar", p.Name, p.Tag(version))
}

// listImages returns what a mirror has to hold, a line for each image: its name, its digest, and
// the archive that has it.
func listImages(written []product.Written, version string) []byte {
	var text strings.Builder
	for _, w := range written {
		fmt.Fprintf(&text, "%s@%s %s\n", w.Name, w.Digest, archiveName(w.Product, version))
	}
	return []byte(text.String())
}

// sumsFile lists the checksums of all other files, as sha256sum(1) reads them.
const sumsFile = "SHA256SUMS"

func writeSums(dir string, names []string) error {
	var text strings.Builder
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("write checksums: %w", err)
		}
		fmt.Fprintf(&text, "%s  %s\n", hashOf(data), name)
	}
	if err := os.WriteFile(filepath.Join(dir, sumsFile), []byte(text.String()), 0o644); err != nil {
		return fmt.Errorf("write checksums: %w", err)
	}
	return nil
}

// hashOf is the SHA-256 of a text in hexadecimal digits.
func hashOf(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }
