// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// place is a directory that the cluster sees at a path of the machine.
type place struct{ path, source string }

// places are the directories that the chart names by default. The cluster has them below the state
// directory, so that an installation with the chart's values touches nothing of the machine.
func places(l layout) []place {
	return []place{
		{"/run/cdi", l.cdiDir()},
		{"/var/lib/deviceshare", l.in("device-plugin")},
		{"/usr/local/vgpu", l.in("vgpu")}, // of Volcano's existing device plugin
		{driverRoot, l.driverRoot()},
		{"/run/nvidia/mps", l.in("mps")},
		// A driver's container has the machine's /run/nvidia and, as every process, the kernel's
		// state.
		{driverRoot + "/run/nvidia/mps", l.in("mps")},
		{driverRoot + "/run/fakegpu", l.gpuDir()},
	}
}

// mountPlaces shows the cluster its own directories, and a /dev of its own in which it can make
// device files.
func mountPlaces(l layout) error {
	if err := mountAt("/run/nvidia", "tmpfs", "tmpfs", 0); err != nil {
		return err
	}
	for _, p := range places(l) {
		if err := os.MkdirAll(p.source, 0o755); err != nil {
			return fmt.Errorf("create %s: %w", p.source, err)
		}
		if err := mountAt(p.path, p.source, "", unix.MS_BIND); err != nil {
			return err
		}
	}
	if err := mountDev(l.in("machine-dev")); err != nil {
		return err
	}
	return mountAt(filepath.Join(driverRoot, "dev"), "/dev", "", unix.MS_BIND|unix.MS_REC)
}

// mountDev mounts a copy of /dev over /dev: the same devices and links, and the same mounts below
// it. The machine's own is at aside for as long as it is copied.
func mountDev(aside string) error {
	if err := mountAt(aside, "/dev", "", unix.MS_BIND|unix.MS_REC); err != nil {
		return err
	}
	// As a peer of /dev it would be covered by what is mounted there, and take that away again.
	if err := unix.Mount("", aside, "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("part the machine's devices from /dev: %w", err)
	}
	if err := unix.Mount("tmpfs", "/dev", "tmpfs", unix.MS_NOSUID, "mode=0755"); err != nil {
		return fmt.Errorf("mount a file system on /dev: %w", err)
	}
	entries, err := os.ReadDir(aside)
	if err != nil {
		return fmt.Errorf("list the machine's devices: %w", err)
	}
	for _, e := range entries {
		if err := copyDev(filepath.Join(aside, e.Name()), filepath.Join("/dev", e.Name()), e.Type()); err != nil {
			return fmt.Errorf("copy /dev/%s: %w", e.Name(), err)
		}
	}
	if err := unix.Unmount(aside, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the machine's /dev: %w", err)
	}
	return nil
}

func copyDev(from, to string, kind fs.FileMode) error {
	switch {
	case kind&fs.ModeSymlink != 0:
		target, err := os.Readlink(from)
		return errors.Join(err, os.Symlink(target, to))
	case kind.IsDir():
		return mountAt(to, from, "", unix.MS_BIND|unix.MS_REC)
	case kind&fs.ModeDevice != 0:
		var s unix.Stat_t
		if err := unix.Stat(from, &s); err != nil {
			return err
		}
		return errors.Join(unix.Mknod(to, s.Mode, int(s.Rdev)), os.Chmod(to, fs.FileMode(s.Mode&0o777)))
	}
	return nil // sockets, such as that of a system log, belong to the machine
}
