// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"deviceshare/sharing"
)

// Process is one process that uses a device.
type Process struct {
	// PID is of the host with older proprietary drivers; with the open kernel module
	// it is of our own namespace, and what is outside that is not listed.
	PID int
	// Memory is all it has of the device, context and code included.
	Memory sharing.Bytes
}

// unknownMemory is what NVML says where it cannot tell (NVML_VALUE_NOT_AVAILABLE).
const unknownMemory = math.MaxUint64

// MemoryByProcess implements Driver. A process that computes and draws is in several of
// NVML's lists, with the same amount.
func (r *NVML) MemoryByProcess(id sharing.DeviceID) ([]Process, error) {
	handle, done, err := r.acquireForMIG(id)
	if err != nil {
		return nil, err
	}
	defer done()
	all, err := r.listProcesses(handle)
	if err != nil {
		return nil, fmt.Errorf("list the processes on device %s: %w", id, err)
	}
	processes, err := mergeProcesses(all)
	if err != nil {
		return nil, fmt.Errorf("list the processes on device %s: %w", id, err)
	}
	return processes, nil
}

// listProcesses is every list of processes that the driver has of a device.
func (r *NVML) listProcesses(handle nvml.Device) (all []nvml.ProcessInfo, err error) {
	for _, list := range []struct {
		call string
		ask  func() ([]nvml.ProcessInfo, nvml.Return)
	}{
		{"nvmlDeviceGetComputeRunningProcesses", handle.GetComputeRunningProcesses},
		{"nvmlDeviceGetGraphicsRunningProcesses", handle.GetGraphicsRunningProcesses},
		{"nvmlDeviceGetMPSComputeRunningProcesses", handle.GetMPSComputeRunningProcesses},
	} {
		if !r.hasSymbol(list.call) {
			continue
		}
		found, ret := list.ask()
		if ret == nvml.ERROR_NOT_SUPPORTED {
			continue
		}
		if err := nvmlFailure(list.call, ret); err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// mergeProcesses has every process once. Some drivers give 0 for all instead of saying that
// they cannot tell (open-gpu-kernel-modules issue 614); a process that is listed has
// a context, which is more than 0.
func mergeProcesses(all []nvml.ProcessInfo) ([]Process, error) {
	memory, sum := map[int]sharing.Bytes{}, sharing.Bytes(0)
	for _, p := range all {
		if p.UsedGpuMemory == unknownMemory {
			return nil, fmt.Errorf("memory of process %d: %w", p.Pid, ErrUnsupported)
		}
		pid, bytes := int(p.Pid), sharing.Bytes(min(p.UsedGpuMemory, uint64(sharing.MaxBytes)))
		memory[pid], sum = max(memory[pid], bytes), sum.Plus(bytes)
	}
	if len(all) > 0 && sum == 0 {
		return nil, fmt.Errorf("memory of %d processes, 0 for all: %w", len(memory), ErrUnsupported)
	}
	processes := make([]Process, 0, len(memory))
	for pid, bytes := range memory {
		processes = append(processes, Process{PID: pid, Memory: bytes})
	}
	slices.SortFunc(processes, func(a, b Process) int { return cmp.Compare(a.PID, b.PID) })
	return processes, nil
}
