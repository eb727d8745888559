// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"fmt"
	"path/filepath"

	"deviceshare/deviceplugin/host"
	"deviceshare/sharing"
)

// Space limits how much containers can write into the directories that they share with
// their daemon.
// Paths are absolute. All methods may be repeated. Implementations are safe for
// concurrent use on different directories.
type Space interface {
	host.Space
	// Empty removes what nobody has open, in a directory that no container writes
	// meanwhile, and takes its limit down to a bound.
	Empty(dir string, b host.Bound) error
	// Trim empties every file of a directory that takes more than so much. A process
	// that has it open goes on writing.
	Trim(dir string, most sharing.Bytes) error
}

// The sizes of the pipe directory, which has a few sockets, and of a log, in bytes.
const (
	pipeSize = 4 * sharing.MiB
	logSize  = 4 * sharing.MiB
)

func (p *Preparer) limitDirectories(d Daemon) error {
	if err := p.cfg.Space.Limit(d.Pipe(), host.Bound{Size: pipeSize, Mode: 0o755, NoLinks: true}); err != nil {
		return fmt.Errorf("the containers of device %s could fill the host's memory: %w", d.Device, err)
	}
	bound, err := p.shmBound(d.Device)
	if err != nil {
		return err
	}
	if err := p.cfg.Space.Limit(d.Shm(), bound); err != nil {
		return fmt.Errorf("the containers of device %s could fill the host's memory: %w", d.Device, err)
	}
	return nil
}

// shmBound is the bound of /dev/shm of a device with the containers that are prepared on it, and
// more that come. It grows with them. It does not become smaller while there are any: what pods
// that are gone left there would take the room of those that stay.
func (p *Preparer) shmBound(id sharing.DeviceID, more ...claimRecord) (host.Bound, error) {
	all, err := p.claimsOf(func(sharing.Owner) bool { return true })
	if err != nil {
		return host.Bound{}, err
	}
	return host.Bound{Size: shmSize(id, append(all, more...), p.cfg.Shm, p.cfg.ShmMost), Mode: shmMode, AtLeast: true}, nil
}

// emptyShm empties /dev/shm of a device that no container has mounted, for those that come.
func (p *Preparer) emptyShm(id sharing.DeviceID, more ...claimRecord) error {
	bound, err := p.shmBound(id, more...)
	if err != nil {
		return err
	}
	bound.AtLeast = false
	return p.cfg.Space.Empty(p.daemonFor(id).Shm(), bound)
}

// boundUnlessUsed is like limitDirectories, but skips a daemon that was started before directories
// had limits: mounting on them would hide its sockets. Such a daemon is replaced when a
// container needs it.
func (p *Preparer) boundUnlessUsed(d Daemon) error {
	m, _, err := p.loadMark(d)
	if err != nil || !m.bounded && p.findPID(d, m) != 0 {
		return err
	}
	return p.limitDirectories(d)
}

func (p *Preparer) removeDirectories(d Daemon) error {
	for _, dir := range []string{d.Pipe(), d.Shm()} {
		if err := p.cfg.Space.Release(dir); err != nil {
			return err
		}
	}
	return p.cfg.Files.Remove(d.Dir)
}

// emptyPipe empties the pipe directory for a daemon that is about to start. Files there are
// left over from the daemon before, or a container put them there to harm the next one.
func (p *Preparer) emptyPipe(d Daemon) error {
	names, err := p.cfg.Files.List(d.Pipe())
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := p.cfg.Files.Remove(filepath.Join(d.Pipe(), name)); err != nil {
			return err
		}
	}
	return nil
}

// emptyUnusedShm empties /dev/shm of a device if no container has it mounted. It waits for the
// lock of the device.
func (p *Preparer) emptyUnusedShm(id sharing.DeviceID) error {
	defer p.lockDevice(id)()
	there, err := p.claimsOnDevice(id)
	if err != nil || len(there) > 0 {
		return err
	}
	return p.emptyShm(id)
}
