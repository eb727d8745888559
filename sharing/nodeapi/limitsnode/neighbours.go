// SPDX-License-Identifier: Apache-2.0

package limitsnode

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"deviceshare/sharing/nodeapi"
)

// neighboursInside is where a container sees what its neighbours on the node are
// entitled to and when they last had work.
const neighboursInside = "/usr/local/vgpu/neighbours"

// demandBytes is the size of a demand file: four stamps of 8 bytes for each of the
// 16 devices that the contract with libvgpu.so knows (struct vgpu_demand).
const demandBytes = 16 * 32

// holdsCompute reports whether libvgpu.so holds the container to a share of some
// device's time: only such a container has something to lend, or to borrow.
func holdsCompute(c *nodeapi.Claim) bool {
	for i := range c.Devices {
		if s := &c.Devices[i].Share; !s.Whole && s.Cores > 0 && s.Cores < 100 {
			return c.Policy != "disable"
		}
	}
	return false
}

// neighbour returns the name of a container's files among those of its neighbours. They
// see the name, so it is a hash that reveals nothing about the pod.
func neighbour(directory string) string {
	sum := sha256.Sum256([]byte(directory))
	return hex.EncodeToString(sum[:8])
}

// entitlement is what the neighbours may know of a claim, in the grammar of the
// limits file. Devices have the numbers they have there.
func entitlement(c *nodeapi.Claim) string {
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

// introduce makes a claim's files among those of its neighbours and returns the mounts. A
// container can write its own demand only, so it can lie about nobody else.
func (w *Writer) introduce(c *nodeapi.Claim) ([]nodeapi.Mount, error) {
	if !holdsCompute(c) {
		return nil, nil
	}
	name := neighbour(directory(c.Owner, c.Container))
	demand := filepath.Join(w.neighbours(), name+".demand")
	if err := w.files.MakeDir(w.neighbours(), 0o755); err != nil {
		return nil, err
	}
	// Made once: a container that runs has this very file mounted. It is never read
	// here: the container may have made it as large as it likes.
	made, err := w.files.Exists(demand)
	if err == nil && !made {
		err = w.files.Write(demand, make([]byte, demandBytes), 0o666)
	}
	if err != nil {
		return nil, err
	}
	if err := w.ensure(filepath.Join(w.neighbours(), name+".share"), []byte(entitlement(c))); err != nil {
		return nil, err
	}
	return []nodeapi.Mount{
		{Host: w.neighbours(), Container: neighboursInside, ReadOnly: true},
		{Host: demand, Container: neighboursInside + "/" + name + ".demand"},
	}, nil
}

// depart removes what introduce made for a container's directory.
func (w *Writer) depart(directory string) error {
	path := filepath.Join(w.neighbours(), neighbour(directory))
	return errors.Join(w.files.Remove(path+".share"), w.files.Remove(path+".demand"))
}

func (w *Writer) neighbours() string { return filepath.Join(w.root, "neighbours") }
