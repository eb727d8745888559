// SPDX-License-Identifier: Apache-2.0

package oversight

import (
	"errors"
	"fmt"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"deviceshare/deviceplugin/metrics/occupancy"
)

// hostProcesses reads /proc. This process must see the host's PIDs there.
type hostProcesses struct{ fs procfs.FS }

// newHostProcesses reads below root, "/proc".
func newHostProcesses(root string) (hostProcesses, error) {
	fs, err := procfs.NewFS(root)
	if err != nil {
		return hostProcesses{}, fmt.Errorf("read the processes of the host: %w", err)
	}
	return hostProcesses{fs}, nil
}

func (h hostProcesses) pidsOf(container string) ([]int, error) {
	all, err := h.fs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("list the processes of container %s: %w", container, err)
	}
	var pids []int
	for _, p := range all {
		if isOf(p, container) {
			pids = append(pids, p.PID)
		}
	}
	return pids, nil
}

func isOf(p procfs.Proc, container string) bool {
	groups, err := p.Cgroups()
	return err == nil && occupancy.IsOf(groups, container) // else it has ended
}

func (h hostProcesses) mountPoints(pid int) ([]string, error) {
	p, err := h.fs.Proc(pid)
	if err != nil {
		return nil, err
	}
	mounts, err := p.MountInfo()
	if err != nil {
		return nil, err
	}
	points := make([]string, 0, len(mounts))
	for _, m := range mounts {
		points = append(points, m.MountPoint)
	}
	return points, nil
}

func (h hostProcesses) Cgroups(pid int) ([]procfs.Cgroup, error) {
	p, err := h.fs.Proc(pid)
	if err != nil {
		return nil, err
	}
	return p.Cgroups()
}

func (h hostProcesses) identifyProcess(pid int) (occupancy.Process, []procfs.Cgroup, error) {
	p, err := h.fs.Proc(pid)
	if err != nil {
		return occupancy.Process{}, nil, err
	}
	stat, err := p.Stat()
	if err != nil {
		return occupancy.Process{}, nil, err
	}
	groups, err := p.Cgroups()
	return occupancy.Process{PID: pid, Started: stat.Starttime, Name: stat.Comm}, groups, err
}

func (h hostProcesses) readProgram(pid int) (program, error) {
	process, groups, err := h.identifyProcess(pid)
	if err != nil {
		return program{}, err
	}
	p, err := h.fs.Proc(pid)
	if err != nil {
		return program{}, err
	}
	mapped, err := p.ProcMaps()
	if err != nil {
		return program{}, err
	}
	out := program{Process: process, groups: groups}
	for _, m := range mapped {
		if m.Pathname != "" && (len(out.mapped) == 0 || out.mapped[len(out.mapped)-1] != m.Pathname) {
			out.mapped = append(out.mapped, m.Pathname)
		}
	}
	return out, nil
}

// killAll implements processes. A process is held fast before it is looked at again: its
// number may have become another one's.
func (h hostProcesses) killAll(container string) error {
	pids, err := h.pidsOf(container)
	if err != nil {
		return err
	}
	var failed []error
	for _, pid := range pids {
		if err := h.killProcess(pid, container); err != nil && !errors.Is(err, unix.ESRCH) {
			failed = append(failed, fmt.Errorf("kill process %d: %w", pid, err))
		}
	}
	return errors.Join(failed...)
}

func (h hostProcesses) killProcess(pid int, container string) error {
	handle, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(handle) }()
	p, err := h.fs.Proc(pid)
	if err != nil || !isOf(p, container) {
		return nil // it has ended
	}
	return unix.PidfdSendSignal(handle, unix.SIGKILL, nil, 0)
}
