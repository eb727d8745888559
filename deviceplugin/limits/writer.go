// SPDX-License-Identifier: Apache-2.0

// Package limits puts libvgpu.so and the limits it enforces into containers,
// for every mode that wants them: it writes the limits file, makes the directory
// that the processes of one container share, and says what to mount. Layout below
// the root:
//
//	containers/<owner>_<name>/     0700, so that nobody else on the host gets in
//	  limits                       read-only in the container
//	  ld.so.preload                the library's path in containers, and behind it what the
//	                               container's image preloads by itself: the hook adds that
//	  libvgpu.so                   a new file where its content changes: a process
//	                               that has the old one mapped keeps it
//	  libcuda.so, libnvidia-ml.so  the same under the driver's names, where the
//	                               administrator wants them to stand in
//	  vgpu/                        01777, because a container runs as any user; a
//	                               file system of its own, of a few MiB
//	hook/deviceshare-hook          what the runtime runs before each container
//	neighbours/                    a shelf of files that cannot grow
//	  shown/                       read-only in every container that shares compute
//	    <hash>.share               what a container is entitled to of each device
//	    <hash>.demand              when it last had work; writable in that container
//
// The last two let libvgpu.so use what a neighbour leaves idle without taking
// anything from one who works: see docs/libvgpu.md.
//
// Limits travel in a read-only file because a container can set variables but
// cannot change a read-only mount. For the same reason CUDA_DISABLE_CONTROL in
// the environment of a container, which switched the limits off upstream, is not
// honoured.
//
// No two containers have a file in common that both must open: root in a container owns
// the host's files, too, and may lease one (F_SETLEASE, fcntl(2)), and then whoever opens
// it waits for 45 s. Files are opened here so that they do not wait.
package limits

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// Writer keeps no state in memory: everything it knows is on the host. It is safe
// for concurrent use by different claims.
type Writer struct {
	files   host.Files
	space   host.Space
	root    string
	library string

	shelf sync.Mutex // with the files of the neighbours
}

// New returns a writer that keeps its files below root and takes libvgpu.so from
// the file library. The root is an absolute path that means the same to the container
// runtime.
func New(files host.Files, space host.Space, root, library string) *Writer {
	return &Writer{files: files, space: space, root: root, library: library}
}

// Write makes every file of the claim and returns what brings them into the
// container: mounts, libraries that stand in, the hook and, for readers that know only
// variables, the same limits as limitsEnvironment. The devices are for the caller to
// add. The claim's shares say what is enforced: a share without memory that is no
// whole device is refused.
func (w *Writer) Write(ctx context.Context, c *modes.Claim) (in modes.Injection, err error) {
	if strings.Contains(string(c.Owner), "_") {
		return in, fmt.Errorf("claim %s: the owner %q holds an underscore, which ends the owner in a directory's name", c.ID, c.Owner)
	}
	if _, err := formatLimits(c, false); err != nil { // before anything is written
		return in, err
	}
	if err := ctx.Err(); err != nil {
		return in, fmt.Errorf("prepare claim %s: %w", c.ID, err)
	}
	if in.Mounts, err = w.installFiles(c); err == nil && c.Interception.StandIn {
		in.StandIns, err = w.installStandIns(w.Dir(c.Owner, c.Container))
	}
	if err == nil {
		in.Hooks, err = w.installHook(w.Dir(c.Owner, c.Container))
	}
	if err != nil {
		return modes.Injection{}, fmt.Errorf("prepare claim %s: %w", c.ID, err)
	}
	in.Env = limitsEnvironment(c)
	return in, nil
}

// preloadName is the file that containers see as their /etc/ld.so.preload.
const preloadName = "ld.so.preload"

// The directory that the processes of a container share, and what they may put there: the region
// has 2 MB. More would be the node's memory.
const (
	sharedName = "vgpu"
	sharedSize = 4 * sharing.MiB
)

// installFiles makes every file of the claim and returns the mounts.
func (w *Writer) installFiles(c *modes.Claim) ([]modes.Mount, error) {
	dir := w.Dir(c.Owner, c.Container)
	if err := w.files.MakeDir(dir, 0o700); err != nil {
		return nil, err
	}
	library, preload := filepath.Join(dir, "libvgpu.so"), filepath.Join(dir, preloadName)
	shared, file := filepath.Join(dir, sharedName), filepath.Join(dir, "limits")
	if err := w.copyLibrary(w.library, library); err != nil {
		return nil, fmt.Errorf("the interception library is missing, nothing would enforce the limits: %w", err)
	}
	if err := w.files.Expose(preload, []byte(libraryInside+"\n"), 0o444); err != nil {
		return nil, err
	}
	// Sticky, as /tmp: any user may make the region, none may remove another's.
	const anybody = 0o777 | fs.ModeSticky
	if err := w.files.MakeDir(shared, anybody); err != nil {
		return nil, err
	}
	if err := w.space.Limit(shared, host.Bound{Size: sharedSize, Mode: anybody}); err != nil {
		return nil, fmt.Errorf("the container could fill the node's disk: %w", err)
	}
	neighbours, err := w.addNeighbour(c)
	if err != nil {
		return nil, err
	}
	text, err := formatLimits(c, len(neighbours) > 0)
	if err == nil {
		err = w.files.Expose(file, []byte(text), 0o444)
	}
	return append([]modes.Mount{
		{Host: library, Container: libraryInside, ReadOnly: true},
		{Host: file, Container: limitsInside, ReadOnly: true},
		{Host: shared, Container: sharedInside},
		{Host: preload, Container: preloadInside, ReadOnly: true},
	}, neighbours...), err
}

// standInDir is where the libraries that stand in for the driver's lie, beside libvgpu.so: a place
// where no program looks for libraries.
const standInDir = "standin"

// installStandIns copies the library under the driver's names.
func (w *Writer) installStandIns(dir string) ([]modes.StandIn, error) {
	var out []modes.StandIn
	for _, name := range []string{"libcuda.so", "libnvidia-ml.so"} {
		path := filepath.Join(dir, name)
		if err := w.copyLibrary(filepath.Join(filepath.Dir(w.library), standInDir, name+".1"), path); err != nil {
			return nil, fmt.Errorf("standIn is set and the library to stand in for %s is missing: %w", name, err)
		}
		out = append(out, modes.StandIn{Library: name, Host: path})
	}
	return out, nil
}

// copyLibrary gives a container a library of its own.
func (w *Writer) copyLibrary(from, to string) error {
	content, err := w.files.Read(from)
	if err != nil {
		return err
	}
	if len(content) == 0 {
		return fmt.Errorf("%s is empty", from)
	}
	return w.files.Expose(to, content, 0o444)
}

// Remove removes everything of an owner's containers.
func (w *Writer) Remove(o sharing.Owner) error {
	names, err := w.files.List(w.containersDir())
	if err != nil {
		return fmt.Errorf("unprepare owner %s: %w", o, err)
	}
	var failed []error
	for _, name := range names {
		if owner, _, ok := strings.Cut(name, "_"); ok && owner == string(o) {
			failed = append(failed, w.removeContainer(name))
		}
	}
	failed = append(failed, w.removeEmptyShelf())
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("unprepare owner %s: %w", o, err)
	}
	return nil
}

// removeContainer removes everything of one container. Its directory goes last: it is what says
// that something is left.
func (w *Writer) removeContainer(name string) error {
	if err := w.removeNeighbour(name); err != nil {
		return err
	}
	if err := w.space.Release(filepath.Join(w.containersDir(), name, sharedName)); err != nil {
		return err
	}
	return w.files.Remove(filepath.Join(w.containersDir(), name))
}

// Abandon unmounts everything on a host that nobody will look after any more. Containers that run
// keep what they have mounted.
func (w *Writer) Abandon() error {
	names, err := w.files.List(w.containersDir())
	if err != nil {
		return fmt.Errorf("abandon the containers: %w", err)
	}
	failed := []error{w.space.Detach(w.neighboursDir())}
	for _, name := range names {
		failed = append(failed, w.space.Detach(filepath.Join(w.containersDir(), name, sharedName)))
	}
	return errors.Join(failed...)
}

// Owners lists whoever has something on the host.
func (w *Writer) Owners() ([]sharing.Owner, error) {
	names, err := w.files.List(w.containersDir())
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

func (w *Writer) containersDir() string { return filepath.Join(w.root, "containers") }

// Dir is the directory of a container, named as upstream's monitor expects it. A
// pod UID holds no underscore, so the name can be taken apart again.
func (w *Writer) Dir(o sharing.Owner, container string) string {
	return filepath.Join(w.containersDir(), directoryName(o, container))
}

func directoryName(o sharing.Owner, container string) string { return string(o) + "_" + container }
