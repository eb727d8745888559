// SPDX-License-Identifier: Apache-2.0

package mpsnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"deviceshare/deviceplugin/driver"
	"deviceshare/sharing"
	"deviceshare/sharing/nodeapi"
)

// version is the version of both formats here.
const version = 1

// device is the record of a device in the mode.
type device struct {
	Version int `json:"version"`
	// Before is the compute mode the device had, which it gets back.
	Before driver.ComputeMode `json:"before"`
	// MemoryMiB and Percentage are the daemon's defaults: what a client has that
	// sets no limit of its own.
	MemoryMiB  int64 `json:"memoryMiB"`
	Percentage int   `json:"percentage"`
	// Wanted says that the daemon has been needed; it is then kept running.
	Wanted bool `json:"wanted"`
}

// claim is the record of a container: who it is and as which user it runs.
type claim struct {
	Version   int              `json:"version"`
	Device    sharing.DeviceID `json:"device"`
	Namespace string           `json:"namespace"`
	Pod       string           `json:"pod"`
	Container string           `json:"container"`
	Kind      string           `json:"kind"`
	User      *int64           `json:"user"` // null: the image decides
	// Shm is what the pod may have in /dev/shm, in bytes; 0 where it does not say.
	Shm sharing.Bytes `json:"shm,omitempty"`
	// Partition is the container's static partition, "" without one.
	Partition string `json:"partition,omitempty"`

	owner sharing.Owner // from the directory's name
}

// decode reads a value of either format.
func decode(path string, text []byte, into any, got *int) error {
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if *got != version {
		return fmt.Errorf("read %s: version %d, want %d", path, *got, version)
	}
	return nil
}

// encode writes a value of either format.
func encode(value any) []byte {
	text, _ := json.Marshal(value) // numbers and texts always marshal
	return append(text, '\n')
}

func (p *Preparer) devicePath(id sharing.DeviceID) string {
	return filepath.Join(p.cfg.Root, "devices", string(id))
}

// device reads the record of a device; false if there is none.
func (p *Preparer) device(id sharing.DeviceID) (device, bool, error) {
	path := p.devicePath(id)
	text, err := p.cfg.Files.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return device{}, false, nil
	}
	if err != nil {
		return device{}, false, err
	}
	var d device
	err = decode(path, text, &d, &d.Version)
	return d, err == nil, err
}

// remember writes the record of a device, unless it is there already.
func (p *Preparer) remember(id sharing.DeviceID, d device) error {
	d.Version = version
	if have, ok, err := p.device(id); err == nil && ok && have == d {
		return nil
	}
	if err := p.cfg.Files.MakeDir(filepath.Join(p.cfg.Root, "devices"), 0o700); err != nil {
		return err
	}
	return p.cfg.Files.Write(p.devicePath(id), encode(d), 0o600)
}

// claims reads every container that is prepared on a device.
func (p *Preparer) claims(id sharing.DeviceID) ([]claim, error) {
	all, err := p.claimsOf(func(sharing.Owner) bool { return true })
	return slices.DeleteFunc(all, func(c claim) bool { return c.Device != id }), err
}

// claimsOf reads the records of the containers of some owners. It returns those that can
// be read even if there is an error about others.
func (p *Preparer) claimsOf(some func(sharing.Owner) bool) ([]claim, error) {
	dir := filepath.Join(p.cfg.Root, "containers")
	names, err := p.cfg.Files.List(dir)
	if err != nil {
		return nil, err
	}
	var all []claim
	var failed []error
	for _, name := range names {
		owner, _, _ := strings.Cut(name, "_")
		if !some(sharing.Owner(owner)) {
			continue
		}
		c := claim{owner: sharing.Owner(owner)}
		path := filepath.Join(dir, name, "claim")
		text, err := p.cfg.Files.Read(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is just being prepared, or removed
		}
		if err == nil {
			err = decode(path, text, &c, &c.Version)
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		all = append(all, c)
	}
	return all, errors.Join(failed...)
}

// claimOf returns the record of a claim.
func claimOf(c *nodeapi.Claim) claim {
	return claim{
		Version: version, Device: c.Devices[0].Device.ID, Namespace: c.Namespace, Pod: c.Pod, Container: c.Container,
		Kind: c.Kind.String(), User: c.User, Shm: c.SharedMemory, owner: c.Owner,
	}
}

// claim writes the record of a claim, unless it is there already.
func (p *Preparer) claim(c *nodeapi.Claim, partition string) error {
	dir, what := p.limits.Dir(c.Owner, c.Container), claimOf(c)
	what.Partition = partition
	path, text := filepath.Join(dir, "claim"), encode(what)
	if have, err := p.cfg.Files.Read(path); err == nil && string(have) == string(text) {
		return nil
	}
	if err := p.cfg.Files.MakeDir(dir, 0o700); err != nil {
		return err
	}
	return p.cfg.Files.Write(path, text, 0o600)
}
