// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
)

// neighboursInside is where a container sees what its neighbours on the node are
// entitled to and when they last had work.
const neighboursInside = "/usr/local/vgpu/neighbours"

// demandBytes is the size of a demand file: four stamps of 8 bytes for each of the
// 16 devices that the contract with libvgpu.so knows (struct vgpu_demand).
const demandBytes = 16 * 32

// holdsCompute reports whether libvgpu.so holds the container to a share of some
// device's time: only such a container has something to lend, or to borrow.
func holdsCompute(c *modes.Claim) bool {
	for i := range c.Devices {
		if s := &c.Devices[i].Share; !s.Whole && s.Cores > 0 && s.Cores < 100 {
			return c.Policy != "disable"
		}
	}
	return false
}

// neighbourName returns the name of a container's files among those of its neighbours. They
// see the name, so it is a hash that reveals nothing about the pod.
func neighbourName(directory string) string {
	sum := sha256.Sum256([]byte(directory))
	return hex.EncodeToString(sum[:8])
}

// formatEntitlement is what the neighbours may know of a claim, in the grammar of the
// limits file. Devices have the numbers they have there.
func formatEntitlement(c *modes.Claim) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\npriority %d\n", limitsVersion, c.Priority)
	for i := range c.Devices {
		s := &c.Devices[i].Share
		cores := s.Cores
		if s.Whole {
			cores = 0
		}
		fmt.Fprintf(&b, "device %d %s memory=0 cores=%d\n", i, s.Device, cores)
	}
	return b.String()
}

// addNeighbour makes a claim's files among those of its neighbours and returns the mounts, none
// where there are more containers than files: then it neither lends nor borrows. A container can
// write its own demand only, so it can lie about nobody else.
func (w *Writer) addNeighbour(c *modes.Claim) ([]modes.Mount, error) {
	if !holdsCompute(c) {
		return nil, nil
	}
	name := neighbourName(directoryName(c.Owner, c.Container))
	if err := w.files.MakeDir(w.neighboursDir(), 0o700); err != nil {
		return nil, err
	}
	w.shelf.Lock()
	defer w.shelf.Unlock()
	// Made once: a container that runs has this very file mounted. It is never read here.
	demand := filepath.Join(host.Shown(w.neighboursDir()), name+".demand")
	made, err := w.files.Exists(demand)
	if err == nil && !made {
		err = w.space.Put(w.neighboursDir(), name+".demand", make([]byte, demandBytes), 0o666)
	}
	if err == nil {
		err = w.space.Put(w.neighboursDir(), name+".share", []byte(formatEntitlement(c)), 0o444)
	}
	switch {
	case errors.Is(err, host.ErrFull):
		return nil, w.space.Drop(w.neighboursDir(), name+".demand")
	case err != nil:
		return nil, fmt.Errorf("tell the neighbours: %w", err)
	}
	return []modes.Mount{
		{Host: host.Shown(w.neighboursDir()), Container: neighboursInside, ReadOnly: true},
		{Host: demand, Container: neighboursInside + "/" + name + ".demand"},
	}, nil
}

func (w *Writer) removeNeighbour(directory string) error {
	w.shelf.Lock()
	defer w.shelf.Unlock()
	name := neighbourName(directory)
	return errors.Join(w.space.Drop(w.neighboursDir(), name+".share"), w.space.Drop(w.neighboursDir(), name+".demand"))
}

// removeEmptyShelf removes the shelf when the last container has left it.
func (w *Writer) removeEmptyShelf() error {
	w.shelf.Lock()
	defer w.shelf.Unlock()
	names, err := w.files.List(host.Shown(w.neighboursDir()))
	if err != nil || len(names) > 0 {
		return err
	}
	if err := w.space.Release(w.neighboursDir()); err != nil {
		return err
	}
	return w.files.Remove(w.neighboursDir())
}

// neighboursDir is the shelf with the files of all.
func (w *Writer) neighboursDir() string { return filepath.Join(w.root, "neighbours") }
