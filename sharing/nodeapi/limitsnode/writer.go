// SPDX-License-Identifier: Apache-2.0

// Package limitsnode puts libvgpu.so and the limits it enforces into containers,
// for every mode that wants them: it writes the limits file, makes the directory
// that the processes of one container share, and says what to mount. Layout below
// the root:
//
//	lib/libvgpu-<hash>.so          one file per content: an upgrade adds a file
//	                               and never changes one that a process has mapped;
//	                               old ones stay, containers may be mounted from them
//	lib/libcuda-<hash>.so, libnvidia-ml-<hash>.so
//	                               the same under the driver's names, where the
//	                               administrator wants them to stand in
//	ld.so.preload                  one line, the library's path in containers
//	containers/<owner>_<name>/     0700, so that nobody else on the host gets in
//	  limits                       read-only in the container
//	  vgpu/                        01777, because a container runs as any user
//	neighbours/                    read-only in every container that shares compute
//	  <hash>.share                 what a container is entitled to of each device
//	  <hash>.demand                when it last had work; writable in that container
//
// The last two let libvgpu.so use what a neighbour leaves idle without taking
// anything from one who works: see docs/libvgpu.md.
//
// Limits travel in a read-only file because a container can set variables but
// cannot change a read-only mount. For the same reason CUDA_DISABLE_CONTROL in
// the environment of a container, which switched the limits off upstream, is not
// honoured.
package limitsnode

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"deviceshare/sharing"
	"deviceshare/sharing/nodeapi"
	"deviceshare/sharing/nodeapi/hostnode"
)

// Writer keeps no state in memory: everything it knows is on the host. It is safe
// for concurrent use by different claims.
type Writer struct {
	files   hostnode.Files
	root    string
	library string
}

// New returns a writer that keeps its files below root and takes libvgpu.so from
// the file library. Both are absolute paths that mean the same to the container
// runtime.
func New(files hostnode.Files, root, library string) *Writer {
	return &Writer{files: files, root: root, library: library}
}

// Write makes every file of the claim and returns what brings them into the
// container: mounts, libraries that stand in and, for readers that know only
// variables, the same limits as environment. The devices are for the caller to
// add. The claim's shares say what is enforced: a share without memory that is no
// whole device is refused.
func (w *Writer) Write(ctx context.Context, c *nodeapi.Claim) (in nodeapi.Injection, err error) {
	if strings.Contains(string(c.Owner), "_") {
		return in, fmt.Errorf("claim %s: the owner %q holds an underscore, which ends the owner in a directory's name", c.ID, c.Owner)
	}
	text, err := limits(c)
	if err != nil {
		return in, err
	}
	if err := ctx.Err(); err != nil {
		return in, fmt.Errorf("prepare claim %s: %w", c.ID, err)
	}
	if in.Mounts, err = w.install(c, text); err == nil && c.Interception.StandIn {
		in.StandIns, err = w.installStandIns()
	}
	if err != nil {
		return nodeapi.Injection{}, fmt.Errorf("prepare claim %s: %w", c.ID, err)
	}
	in.Env = environment(c)
	return in, nil
}

// install makes every file of the claim and returns the mounts.
func (w *Writer) install(c *nodeapi.Claim, text string) ([]nodeapi.Mount, error) {
	library, err := w.installLibrary()
	if err != nil {
		return nil, err
	}
	preload := filepath.Join(w.root, "ld.so.preload")
	if err := w.ensure(preload, []byte(libraryInside+"\n")); err != nil {
		return nil, err
	}
	dir := w.Dir(c.Owner, c.Container)
	shared, file := filepath.Join(dir, "vgpu"), filepath.Join(dir, "limits")
	if err := w.files.MakeDir(dir, 0o700); err != nil {
		return nil, err
	}
	// Sticky, as /tmp: any user may make the region, none may remove another's.
	if err := w.files.MakeDir(shared, 0o777|fs.ModeSticky); err != nil {
		return nil, err
	}
	if err := w.ensure(file, []byte(text)); err != nil {
		return nil, err
	}
	neighbours, err := w.introduce(c)
	return append([]nodeapi.Mount{
		{Host: library, Container: libraryInside, ReadOnly: true},
		{Host: file, Container: limitsInside, ReadOnly: true},
		{Host: shared, Container: sharedInside},
		{Host: preload, Container: preloadInside, ReadOnly: true},
	}, neighbours...), err
}

// installLibrary copies libvgpu.so to a name made of its content.
func (w *Writer) installLibrary() (string, error) {
	path, err := w.installContent(w.library, "libvgpu")
	if err != nil {
		return "", fmt.Errorf("the interception library is missing, nothing would enforce the limits: %w", err)
	}
	return path, nil
}

// standInDir is where the libraries that stand in for the driver's lie, beside
// libvgpu.so: a place where no program of this host looks for libraries.
const standInDir = "standin"

// installStandIns does the same with the library under the driver's names.
func (w *Writer) installStandIns() ([]nodeapi.StandIn, error) {
	var out []nodeapi.StandIn
	for _, name := range []string{"libcuda", "libnvidia-ml"} {
		path, err := w.installContent(filepath.Join(filepath.Dir(w.library), standInDir, name+".so.1"), name)
		if err != nil {
			return nil, fmt.Errorf("standIn is set and the library to stand in for %s is missing: %w", name, err)
		}
		out = append(out, nodeapi.StandIn{Library: name + ".so", Host: path})
	}
	return out, nil
}

// installContent copies a library to a name made of its content.
func (w *Writer) installContent(from, name string) (string, error) {
	content, err := w.files.Read(from)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(content)
	dir := filepath.Join(w.root, "lib")
	if err := w.files.MakeDir(dir, 0o755); err != nil {
		return "", err
	}
	target := filepath.Join(dir, name+"-"+hex.EncodeToString(sum[:8])+".so")
	return target, w.ensure(target, content)
}

// ensure writes a world-readable file unless it has the content already.
func (w *Writer) ensure(path string, content []byte) error {
	have, err := w.files.Read(path)
	if err == nil && bytes.Equal(have, content) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return w.files.Write(path, content, 0o444)
}

// Remove removes everything of an owner's containers.
func (w *Writer) Remove(o sharing.Owner) error {
	names, err := w.files.List(w.containers())
	if err != nil {
		return fmt.Errorf("unprepare owner %s: %w", o, err)
	}
	var failed []error
	for _, name := range names {
		if owner, _, ok := strings.Cut(name, "_"); ok && owner == string(o) {
			// The directory last: it is what says that something is left.
			err := w.depart(name)
			if err == nil {
				err = w.files.Remove(filepath.Join(w.containers(), name))
			}
			failed = append(failed, err)
		}
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("unprepare owner %s: %w", o, err)
	}
	return nil
}

// Owners lists whoever has something on the host.
func (w *Writer) Owners() ([]sharing.Owner, error) {
	names, err := w.files.List(w.containers())
	if err != nil {
		return nil, fmt.Errorf("list prepared owners: %w", err)
	}
	var owners []sharing.Owner
	for _, name := range names {
		if owner, _, ok := strings.Cut(name, "_"); ok {
			owners = append(owners, sharing.Owner(owner))
		}
	}
	return owners, nil
}

func (w *Writer) containers() string { return filepath.Join(w.root, "containers") }

// Dir is the directory of a container, named as upstream's monitor expects it. A
// pod UID holds no underscore, so the name can be taken apart again.
func (w *Writer) Dir(o sharing.Owner, container string) string {
	return filepath.Join(w.containers(), directory(o, container))
}

// directory is the name of a container's directory.
func directory(o sharing.Owner, container string) string { return string(o) + "_" + container }
