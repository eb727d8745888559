// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// prepareState makes the state directory of a cluster that is about to start, without what an
// earlier one left there.
func prepareState(l layout) error {
	if os.Geteuid() != 0 {
		return errors.New("the sandbox needs root: the kubelet and containerd mount and make cgroups; run it with sudo")
	}
	if err := claim(l); err != nil {
		return err
	}
	if err := clean(l); err != nil {
		return fmt.Errorf("clean up after an earlier run: %w", err)
	}
	if err := os.RemoveAll(l.in("logs")); err != nil {
		return fmt.Errorf("remove old logs: %w", err)
	}
	return l.makeDirs()
}

// cleanTimeout bounds how long the processes of a cluster whose owner was killed may take to end.
const cleanTimeout = 10 * time.Second

// clean removes what the kernel does not remove by itself when a cluster ends: cgroups, the address
// of an installation's API server, and the files in the state directory. Log files stay. Processes
// that the kernel is about to end may be in the way for a moment.
func clean(l layout) error {
	deadline := time.Now().Add(cleanTimeout)
	for {
		err := errors.Join(removeCgroup(l), releaseLeft(claimsDir, l), wipe(l))
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pollEvery)
	}
}

// markerFile is in every state directory that is not at the default place. A directory there that
// holds other things but not this file is never emptied: its path may be a typing mistake.
const markerFile = "deviceshare-sandbox.state"

// ours reports whether the state directory may be emptied.
func (l layout) ours() bool {
	return l.state == defaultState(l.repo, false) || l.state == defaultState(l.repo, true) || exists(l.in(markerFile))
}

// claim refuses a directory that is in use for something else, creates a new one and marks it.
func claim(l layout) error {
	if err := os.MkdirAll(l.state, 0o755); err != nil {
		return fmt.Errorf("create the state directory: %w", err)
	}
	entries, err := os.ReadDir(l.state)
	if err != nil {
		return fmt.Errorf("look at the state directory: %w", err)
	}
	if len(entries) > 0 && !l.ours() {
		return fmt.Errorf("state directory %s holds something that is not a sandbox's and would be deleted; choose another", l.state)
	}
	return os.WriteFile(l.in(markerFile), []byte("deviceshare sandbox 1\n"), 0o644)
}

// wipe empties the state directory but for the logs.
func wipe(l layout) error {
	entries, err := os.ReadDir(l.state)
	if errors.Is(err, os.ErrNotExist) || !l.ours() {
		return nil
	}
	if err != nil {
		return fmt.Errorf("empty the state directory: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if e.Name() != "logs" && e.Name() != markerFile {
			errs = append(errs, os.RemoveAll(l.in(e.Name())))
		}
	}
	return errors.Join(errs...)
}

// nodev is the flag of statfs(2) for file systems on which device files do nothing.
const nodev = 4

// checkState says what is wrong with the file system of the state directory.
func checkState(l layout) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(l.state, &st); err != nil {
		return fmt.Errorf("look at the state directory: %w", err)
	}
	if st.Flags&nodev != 0 {
		return fmt.Errorf("state directory %s: its file system is mounted with nodev, the fake GPUs need device files; choose another", l.state)
	}
	return nil
}
