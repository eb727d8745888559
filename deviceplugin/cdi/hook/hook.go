// SPDX-License-Identifier: Apache-2.0

// Package hook is what the container runtime runs for a container before it starts. It keeps what
// the container's image preloads by itself: our mount hides the image's /etc/ld.so.preload, so its
// lines are put behind ours.
//
// It runs as the OCI hook createRuntime: in the namespaces of the host, where the container's root
// is the image and nothing that is mounted over it. The image may be a stranger's, and the hook is
// root on the host.
package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	pathrs "github.com/cyphar/filepath-securejoin/pathrs-lite"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"deviceshare/deviceplugin/cdi/hook/preload"
)

// What is read at most, in bytes. What the runtime writes of a container is a few hundred KiB.
const (
	mostPreload = 64 << 10
	mostState   = 1 << 20
	mostBundle  = 64 << 20
)

// preloadInside is the file that the loader reads, in every container.
const preloadInside = "/etc/ld.so.preload"

// Preload is a container whose file is merged.
type Preload struct {
	// Library is ours, as containers see it.
	Library string
	// File is what the container sees as its /etc/ld.so.preload.
	File string
}

// Merge writes what the image of the container preloads behind our line. The runtime says on state
// which container that is. After an error the container must not start: nothing is known of what
// it would preload.
func (p Preload) Merge(state io.Reader) error {
	root, err := rootOf(state)
	if err != nil {
		return err
	}
	image, err := readImage(root)
	if err != nil {
		return fmt.Errorf("read what the image preloads by itself, %s: %w", preloadInside, err)
	}
	if err := rewriteFile(p.File, preload.Merge(p.Library, image)); err != nil {
		return fmt.Errorf("keep what the image preloads by itself: %w", err)
	}
	return nil
}

// rootOf returns the root of the container that the runtime's text names.
func rootOf(state io.Reader) (string, error) {
	var s oci.State
	if err := decodeJSON(state, mostState, &s); err != nil {
		return "", fmt.Errorf("read the runtime's state of the container: %w", err)
	}
	if !filepath.IsAbs(s.Bundle) {
		return "", fmt.Errorf("read the runtime's state of the container: its bundle %q is no absolute path", s.Bundle)
	}
	f, err := os.Open(filepath.Join(s.Bundle, "config.json"))
	if err != nil {
		return "", fmt.Errorf("read the container's bundle: %w", err)
	}
	defer f.Close()
	var spec struct{ Root *oci.Root }
	if err := decodeJSON(f, mostBundle, &spec); err != nil {
		return "", fmt.Errorf("read the container's bundle: %s: %w", f.Name(), err)
	}
	switch {
	case spec.Root == nil || spec.Root.Path == "":
		return "", fmt.Errorf("read the container's bundle: %s names no root", f.Name())
	case filepath.IsAbs(spec.Root.Path):
		return spec.Root.Path, nil
	}
	return filepath.Join(s.Bundle, spec.Root.Path), nil
}

func decodeJSON(r io.Reader, most int64, into any) error {
	text, err := readBounded(r, most)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

func readBounded(r io.Reader, most int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(text)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return text, err
}

// readImage returns the image's file; nothing if there is none that a loader would read. Links stay
// in the image. What is no file is not opened: opening a device may do something, and opening a
// pipe waits.
func readImage(root string) ([]byte, error) {
	place, err := pathrs.OpenInRoot(root, preloadInside)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ELOOP):
		if _, err := os.Stat(root); err != nil {
			return nil, err // nothing is known of the image
		}
		return nil, nil
	case err != nil:
		return nil, err
	}
	defer place.Close()
	info, err := place.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	f, err := pathrs.Reopen(place, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readBounded(f, mostPreload)
}

// rewriteFile gives the container's file another content. It stays the same file: the container may
// have it mounted already. A program that has a lease on it does not hold the hook up.
func rewriteFile(path string, content []byte) (err error) {
	f, err := os.OpenFile(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() {
		if closed := f.Close(); err == nil {
			err = closed
		}
	}()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return errors.Join(err, fmt.Errorf("%s is no file", path))
	}
	have, err := readBounded(f, 2*mostPreload)
	if err == nil && bytes.Equal(have, content) {
		return nil
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	return err
}
