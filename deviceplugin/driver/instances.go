// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"deviceshare/sharing"
)

// MIGDevice is where a MIG device is.
type MIGDevice struct {
	Parent sharing.DeviceID
	Minor  int // number of the parent's device node
	GI, CI int
}

// migFailure is failure for a call about partitions: there a device that must be
// reset is not lost, but on the way into another mode.
func migFailure(call string, ret nvml.Return) error {
	if ret == nvml.ERROR_RESET_REQUIRED {
		return fmt.Errorf("%s: %w", call, ErrResetRequired)
	}
	return nvmlFailure(call, ret)
}

// acquireForMIG finds a device for calls about partitions, see acquireDevice.
func (r *NVML) acquireForMIG(id sharing.DeviceID, symbols ...string) (handle nvml.Device, done func(), err error) {
	return r.acquireDevice(id, migFailure, symbols...)
}

// MIGMode implements Partitions.
func (r *NVML) MIGMode(id sharing.DeviceID) (current, pending bool, err error) {
	handle, done, err := r.acquireForMIG(id, "nvmlDeviceGetMigMode")
	if err != nil {
		return false, false, err
	}
	defer done()
	now, next, ret := handle.GetMigMode()
	return now == nvml.DEVICE_MIG_ENABLE, next == nvml.DEVICE_MIG_ENABLE, migFailure("nvmlDeviceGetMigMode", ret)
}

// gpuInstanceProfiles are the shapes a device offers, by the driver's id.
func gpuInstanceProfiles(handle nvml.Device) (map[uint32]nvml.GpuInstanceProfileInfo_v2, error) {
	found := map[uint32]nvml.GpuInstanceProfileInfo_v2{}
	for number := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, ret := handle.GetGpuInstanceProfileInfoV(number).V2()
		switch ret {
		case nvml.SUCCESS:
			found[info.Id] = info
		case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_INVALID_ARGUMENT: // not on this device; not known to this driver
		default:
			return nil, migFailure("nvmlDeviceGetGpuInstanceProfileInfoV", ret)
		}
	}
	return found, nil
}

// Instances implements Partitions.
func (r *NVML) Instances(id sharing.DeviceID) ([]Instance, error) {
	handle, done, err := r.acquireForMIG(id, "nvmlDeviceGetMigMode", "nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlDeviceGetGpuInstances",
		"nvmlGpuInstanceGetInfo", "nvmlGpuInstanceGetComputeInstanceProfileInfo", "nvmlGpuInstanceGetComputeInstances", "nvmlComputeInstanceGetInfo_v2")
	if err != nil {
		return nil, err
	}
	defer done()
	if now, _, ret := handle.GetMigMode(); ret != nvml.SUCCESS || now != nvml.DEVICE_MIG_ENABLE {
		return nil, migFailure("nvmlDeviceGetMigMode", ret)
	}
	shapes, err := gpuInstanceProfiles(handle)
	if err != nil {
		return nil, err
	}
	var all []Instance
	for _, shape := range shapes {
		found, err := instancesOf(handle, &shape)
		if err != nil {
			return nil, fmt.Errorf("list instances of device %s: %w", id, err)
		}
		all = append(all, found...)
	}
	slices.SortFunc(all, func(a, b Instance) int { return a.GI - b.GI })
	return all, nil
}

// instancesOf lists the instances of one profile. The binding asks for as many as
// may exist.
func instancesOf(handle nvml.Device, shape *nvml.GpuInstanceProfileInfo_v2) ([]Instance, error) {
	if shape.InstanceCount == 0 {
		return nil, nil
	}
	handles, ret := handle.GetGpuInstances(&nvml.GpuInstanceProfileInfo{Id: shape.Id, InstanceCount: shape.InstanceCount})
	if err := migFailure("nvmlDeviceGetGpuInstances", ret); err != nil {
		return nil, err
	}
	found := make([]Instance, 0, len(handles))
	for _, gi := range handles {
		info, ret := gi.GetInfo()
		if ret == nvml.ERROR_NOT_FOUND {
			continue // destroyed since
		}
		if err := migFailure("nvmlGpuInstanceGetInfo", ret); err != nil {
			return nil, err
		}
		in := Instance{
			Profile: profileName(shape.Name[:]), GI: int(info.Id),
			Start: int(info.Placement.Start), Size: int(info.Placement.Size),
		}
		var err error
		if in.Compute, err = computeOf(gi, shape.SliceCount); err != nil {
			return nil, err
		}
		found = append(found, in)
	}
	return found, nil
}

// computeProfiles are the shapes that compute instances of a GPU instance can have.
func computeProfiles(gi nvml.GpuInstance) ([]nvml.ComputeInstanceProfileInfo, error) {
	var found []nvml.ComputeInstanceProfileInfo
	for number := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, ret := gi.GetComputeInstanceProfileInfo(number, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		switch ret {
		case nvml.SUCCESS:
			found = append(found, info)
		case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_INVALID_ARGUMENT:
		default:
			return nil, migFailure("nvmlGpuInstanceGetComputeInstanceProfileInfo", ret)
		}
	}
	return found, nil
}

// computeOf lists the compute instances of a GPU instance of so many compute
// slices.
func computeOf(gi nvml.GpuInstance, compute uint32) ([]ComputeInstance, error) {
	shapes, err := computeProfiles(gi)
	if err != nil {
		return nil, err
	}
	var all []ComputeInstance
	for _, shape := range shapes {
		if shape.InstanceCount == 0 {
			continue
		}
		handles, ret := gi.GetComputeInstances(&shape)
		if err := migFailure("nvmlGpuInstanceGetComputeInstances", ret); err != nil {
			return nil, err
		}
		for _, ci := range handles {
			c, err := readComputeInstance(ci)
			if errors.Is(err, ErrNotFound) {
				continue // destroyed since
			}
			if err != nil {
				return nil, err
			}
			c.Spans = shape.SliceCount == compute
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b ComputeInstance) int { return a.CI - b.CI })
	return all, nil
}

// readComputeInstance asks a compute instance for its MIG device. It is taken from the
// compute instance itself: to walk the MIG devices of a busy node can take seconds,
// and their index says nothing about places.
func readComputeInstance(ci nvml.ComputeInstance) (ComputeInstance, error) {
	info, ret := ci.GetInfo()
	if err := migFailure("nvmlComputeInstanceGetInfo", ret); err != nil {
		return ComputeInstance{}, err
	}
	uuid, ret := info.Device.GetUUID()
	if err := migFailure("nvmlDeviceGetUUID of a MIG device", ret); err != nil {
		return ComputeInstance{}, err
	}
	return ComputeInstance{CI: int(info.Id), UUID: uuid}, nil
}

// Processes implements Partitions.
func (r *NVML) Processes(id sharing.DeviceID, gi int) ([]int, error) {
	handle, done, err := r.acquireForMIG(id)
	if err != nil {
		return nil, err
	}
	defer done()
	running, ret := handle.GetComputeRunningProcesses()
	if err := migFailure("nvmlDeviceGetComputeRunningProcesses", ret); err != nil {
		return nil, err
	}
	var pids []int
	for _, p := range running {
		if int(p.GpuInstanceId) == gi {
			pids = append(pids, int(p.Pid))
		}
	}
	slices.Sort(pids)
	return pids, nil
}

// MIGDevice implements Driver.
func (r *NVML) MIGDevice(uuid string) (MIGDevice, error) {
	handle, done, err := r.acquireForMIG(sharing.DeviceID(uuid), "nvmlDeviceGetGpuInstanceId", "nvmlDeviceGetComputeInstanceId", "nvmlDeviceGetDeviceHandleFromMigDeviceHandle")
	if err != nil {
		return MIGDevice{}, err
	}
	defer done()
	var m MIGDevice
	gi, ret := handle.GetGpuInstanceId()
	err = migFailure("nvmlDeviceGetGpuInstanceId", ret)
	ci := 0
	if err == nil {
		ci, ret = handle.GetComputeInstanceId()
		err = migFailure("nvmlDeviceGetComputeInstanceId", ret)
	}
	var parent nvml.Device
	if err == nil {
		parent, ret = handle.GetDeviceHandleFromMigDeviceHandle()
		err = migFailure("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", ret)
	}
	var id string
	if err == nil {
		id, ret = parent.GetUUID()
		err = migFailure("nvmlDeviceGetUUID", ret)
	}
	if err == nil {
		m.Minor, ret = parent.GetMinorNumber()
		err = migFailure("nvmlDeviceGetMinorNumber", ret)
	}
	if err != nil {
		return MIGDevice{}, fmt.Errorf("locate MIG device %s: %w", uuid, err)
	}
	m.Parent, m.GI, m.CI = sharing.DeviceID(id), gi, ci
	return m, nil
}
