// SPDX-License-Identifier: Apache-2.0

package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// File is one entry of an image: a directory if the path ends in "/", else a symbolic link if Link
// is set, else a regular file with the content of Source, a file of this machine, or with Text.
type File struct {
	Path   string `json:"path"` // below the root, without a leading slash
	Link   string `json:"link,omitempty"`
	Text   string `json:"text,omitempty"`
	Source string `json:"source,omitempty"`
	Mode   int64  `json:"mode,omitempty"`
}

func (f File) isDir() bool { return strings.HasSuffix(f.Path, "/") }

// cleanPath is the path without the slash that marks a directory.
func (f File) cleanPath() string { return strings.TrimSuffix(f.Path, "/") }

// Tree returns the files below a directory of this machine as entries of an image. Of their modes
// only the right to execute stays: what an image needs beyond it is said where the image is
// described.
func Tree(dir string) ([]File, error) {
	var files []File
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		f, err := fileEntry(filepath.ToSlash(rel), p, d)
		files = append(files, f)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the files below %s: %w", dir, err)
	}
	return files, nil
}

func fileEntry(rel, source string, d fs.DirEntry) (File, error) {
	info, err := d.Info()
	if err != nil {
		return File{}, err
	}
	switch {
	case d.IsDir():
		return File{Path: rel + "/", Mode: 0o755}, nil
	case info.Mode()&fs.ModeSymlink != 0:
		link, err := os.Readlink(source)
		return File{Path: rel, Link: link}, err
	case !info.Mode().IsRegular():
		return File{}, fmt.Errorf("%s is %v: want a regular file, a link or a directory", source, info.Mode())
	case info.Mode()&0o111 != 0:
		return File{Path: rel, Source: source, Mode: 0o755}, nil
	}
	return File{Path: rel, Source: source, Mode: 0o644}, nil
}

// buildLayer makes a layer of the files. The same files give the same bytes: entries are sorted,
// belong to root, and have no time.
func buildLayer(files []File) (v1.Layer, error) {
	var data bytes.Buffer
	if err := WriteTar(&data, files); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching,
		tarball.WithCompressionLevel(gzip.DefaultCompression))
}

// WriteTar writes the files as a tar file, in the order of their paths, each directory before what
// is in it. Directories that are not among the files get mode 0755. The same files give the same
// bytes.
func WriteTar(w io.Writer, files []File) error {
	all, err := withParents(files)
	if err != nil {
		return err
	}
	tw := tar.NewWriter(w)
	for _, f := range all {
		if err := writeFile(tw, f); err != nil {
			return fmt.Errorf("write %s: %w", f.Path, err)
		}
	}
	return tw.Close()
}

// withParents returns the files and every directory above them, sorted. An error says that a path
// is not a clean relative one, or that two entries have the same.
func withParents(files []File) ([]File, error) {
	byName := map[string]File{}
	for _, f := range files {
		if !fs.ValidPath(f.cleanPath()) || f.cleanPath() == "." {
			return nil, fmt.Errorf("file %q: the path must be below the root and clean", f.Path)
		}
		if _, ok := byName[f.cleanPath()]; ok {
			return nil, fmt.Errorf("file %q is there twice", f.Path)
		}
		byName[f.cleanPath()] = f
	}
	all := slices.Clone(files)
	for _, f := range files {
		for dir := path.Dir(f.cleanPath()); dir != "."; dir = path.Dir(dir) {
			parent, ok := byName[dir]
			if !ok {
				byName[dir] = File{Path: dir + "/", Mode: 0o755}
				all = append(all, byName[dir])
			} else if !parent.isDir() {
				return nil, fmt.Errorf("file %q is below %q, which is no directory", f.Path, parent.Path)
			}
		}
	}
	slices.SortFunc(all, func(a, b File) int { return strings.Compare(a.cleanPath(), b.cleanPath()) })
	return all, nil
}

func writeFile(tw *tar.Writer, f File) error {
	h := &tar.Header{Name: f.Path, Mode: f.Mode, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
	data := []byte(f.Text)
	switch {
	case f.isDir():
		h.Typeflag = tar.TypeDir
	case f.Link != "":
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, f.Link, 0o777
	case f.Source != "":
		var err error
		if data, err = os.ReadFile(f.Source); err != nil {
			return err
		}
	}
	h.Size = int64(len(data))
	if h.Typeflag != tar.TypeReg && h.Size > 0 {
		return errors.New("a directory or link has content")
	}
	if err := tw.WriteHeader(h); err != nil {
		return err
	}
	_, err := tw.Write(data)
	return err
}
