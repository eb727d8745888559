// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/prometheus/procfs"

	"deviceshare/sharing"
)

// Clients implements Partitions.
func (r *NVML) Clients(id sharing.DeviceID) ([]Client, error) {
	handle, done, err := r.acquireForMIG(id, "nvmlDeviceGetMinorNumber")
	if err != nil {
		return nil, err
	}
	defer done()
	listed, err := r.listProcesses(handle)
	if err != nil {
		return nil, fmt.Errorf("list the processes on device %s: %w", id, err)
	}
	var clients []Client
	for _, p := range listed {
		gi := WholeDevice
		if p.GpuInstanceId != noInstance {
			gi = int(p.GpuInstanceId)
		}
		clients = append(clients, Client{PID: int(p.Pid), Name: r.programName(p.Pid), GI: gi})
	}
	if minor, ret := handle.GetMinorNumber(); ret == nvml.SUCCESS {
		clients = append(clients, clientsWithOpenFile(procfs.DefaultMountPoint, fmt.Sprint("/dev/nvidia", minor))...)
	}
	return otherClients(clients), nil
}

// noInstance is what NVML says of a process that runs on the whole device.
const noInstance = 0xffffffff

// otherClients has every process once, by number, without this one. What the driver said of it
// comes before what /proc says.
func otherClients(clients []Client) []Client {
	slices.SortStableFunc(clients, func(a, b Client) int { return cmp.Compare(a.PID, b.PID) })
	clients = slices.CompactFunc(clients, func(a, b Client) bool { return a.PID == b.PID })
	return slices.DeleteFunc(clients, func(c Client) bool { return c.PID == os.Getpid() })
}

// programName is the name of a process's program as the driver says it.
func (r *NVML) programName(pid uint32) string {
	if !r.hasSymbol("nvmlSystemGetProcessName") {
		return ""
	}
	name, ret := r.Library().SystemGetProcessName(int(pid))
	if ret != nvml.SUCCESS || name == "" {
		return ""
	}
	return filepath.Base(name)
}

// clientsWithOpenFile are the processes below a /proc that have a file open under this path. Those
// that cannot be read are left out: it is for people.
func clientsWithOpenFile(proc, path string) []Client {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return nil
	}
	all, err := fs.AllProcs()
	if err != nil {
		return nil
	}
	var found []Client
	for _, p := range all {
		open, err := p.FileDescriptorTargets()
		if err != nil || !slices.Contains(open, path) {
			continue
		}
		name, _ := p.Comm()
		found = append(found, Client{PID: p.PID, Name: name, GI: WholeDevice})
	}
	return found
}
