// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// version is the version of both formats here.
const version = 1

// deviceRecord is the record of a device in the mode.
type deviceRecord struct {
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

// claimRecord is the record of a container: who it is and as which user it runs.
type claimRecord struct {
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

func decodeRecord(path string, text []byte, into any, got *int) error {
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	if *got != version {
		return fmt.Errorf("read %s: version %d, want %d", path, *got, version)
	}
	return nil
}

func encodeRecord(value any) []byte {
	text, _ := json.Marshal(value) // numbers and texts always marshal
	return append(text, '\n')
}

func (p *Preparer) devicePath(id sharing.DeviceID) string {
	return filepath.Join(p.cfg.Root, "devices", string(id))
}

// readDeviceRecord reads the record of a device; false if there is none.
func (p *Preparer) readDeviceRecord(id sharing.DeviceID) (deviceRecord, bool, error) {
	path := p.devicePath(id)
	text, err := p.cfg.Files.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return deviceRecord{}, false, nil
	}
	if err != nil {
		return deviceRecord{}, false, err
	}
	var d deviceRecord
	err = decodeRecord(path, text, &d, &d.Version)
	return d, err == nil, err
}

// writeDeviceRecord writes the record of a device, unless it is there already.
func (p *Preparer) writeDeviceRecord(id sharing.DeviceID, d deviceRecord) error {
	d.Version = version
	if have, ok, err := p.readDeviceRecord(id); err == nil && ok && have == d {
		return nil
	}
	if err := p.cfg.Files.MakeDir(filepath.Join(p.cfg.Root, "devices"), 0o700); err != nil {
		return err
	}
	return p.cfg.Files.Write(p.devicePath(id), encodeRecord(d), 0o600)
}

func (p *Preparer) claimsOnDevice(id sharing.DeviceID) ([]claimRecord, error) {
	all, err := p.claimsOf(func(sharing.Owner) bool { return true })
	return slices.DeleteFunc(all, func(c claimRecord) bool { return c.Device != id }), err
}

// claimsOf reads the records of the containers of some owners. It returns those that can
// be read even if there is an error about others.
func (p *Preparer) claimsOf(some func(sharing.Owner) bool) ([]claimRecord, error) {
	dir := filepath.Join(p.cfg.Root, "containers")
	names, err := p.cfg.Files.List(dir)
	if err != nil {
		return nil, err
	}
	var all []claimRecord
	var failed []error
	for _, name := range names {
		owner, _, _ := strings.Cut(name, "_")
		if !some(sharing.Owner(owner)) {
			continue
		}
		c := claimRecord{owner: sharing.Owner(owner)}
		path := filepath.Join(dir, name, "claim")
		text, err := p.cfg.Files.Read(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it is just being prepared, or removed
		}
		if err == nil {
			err = decodeRecord(path, text, &c, &c.Version)
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		all = append(all, c)
	}
	return all, errors.Join(failed...)
}

func claimOf(c *modes.Claim) claimRecord {
	return claimRecord{
		Version: version, Device: c.Devices[0].Device.ID, Namespace: c.Namespace, Pod: c.Pod, Container: c.Container,
		Kind: c.Kind.String(), User: c.User, Shm: c.SharedMemory, owner: c.Owner,
	}
}

// writeClaimRecord writes the record of a claim, unless it is there already.
func (p *Preparer) writeClaimRecord(c *modes.Claim, partition string) error {
	dir, what := p.limits.Dir(c.Owner, c.Container), claimOf(c)
	what.Partition = partition
	path, text := filepath.Join(dir, "claim"), encodeRecord(what)
	if have, err := p.cfg.Files.Read(path); err == nil && string(have) == string(text) {
		return nil
	}
	if err := p.cfg.Files.MakeDir(dir, 0o700); err != nil {
		return err
	}
	return p.cfg.Files.Write(path, text, 0o600)
}
