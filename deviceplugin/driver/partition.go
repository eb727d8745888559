// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"deviceshare/sharing"
)

var _ Driver = (*NVML)(nil)

// hopper is the compute capability from which the mode is a state of the driver
// and not of the card.
const hopper = 9

// Resetless implements Partitions.
func (r *NVML) Resetless(id sharing.DeviceID) (bool, error) {
	handle, done, err := r.acquireForMIG(id)
	if err != nil {
		return false, err
	}
	defer done()
	major, _, ret := handle.GetCudaComputeCapability()
	return major >= hopper, migFailure("nvmlDeviceGetCudaComputeCapability", ret)
}

// SetMIGMode implements Partitions. The driver gives two answers: whether the
// mode was taken down, and whether it could be made so at once (nvml.h at
// nvmlDeviceSetMigMode). The binding returns the second one first. Watches are closed
// meanwhile, see ErrMissed.
func (r *NVML) SetMIGMode(id sharing.DeviceID, on bool) error {
	handle, done, err := r.acquireForMIG(id, "nvmlDeviceSetMigMode", "nvmlDeviceGetMigMode")
	if err != nil {
		return err
	}
	defer done()
	mode := nvml.DEVICE_MIG_DISABLE
	if on {
		mode = nvml.DEVICE_MIG_ENABLE
	}
	resume := r.pauseWatches()
	activation, ret := handle.SetMigMode(mode)
	resume()
	if err := migFailure("nvmlDeviceSetMigMode", ret); err != nil {
		return err
	}
	if err := migFailure("nvmlDeviceSetMigMode, making it so", activation); err != nil {
		return err
	}
	now, _, ret := handle.GetMigMode()
	if err := migFailure("nvmlDeviceGetMigMode", ret); err != nil {
		return err
	}
	if now != mode {
		return fmt.Errorf("nvmlDeviceSetMigMode answered success and the mode is as before: %w", ErrResetRequired)
	}
	return nil
}

// CreateGPUInstance implements Partitions.
func (r *NVML) CreateGPUInstance(id sharing.DeviceID, profile string, start int) (int, error) {
	handle, done, err := r.acquireForMIG(id, "nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
		"nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceGetInfo")
	if err != nil {
		return 0, err
	}
	defer done()
	shapes, err := gpuInstanceProfiles(handle)
	if err != nil {
		return 0, err
	}
	for _, shape := range shapes {
		if profileName(shape.Name[:]) != profile {
			continue
		}
		place, err := findLegalPlace(handle, shape.Id, start)
		if err != nil {
			return 0, fmt.Errorf("profile %s: %w", profile, err)
		}
		gi, ret := handle.CreateGpuInstanceWithPlacement(&nvml.GpuInstanceProfileInfo{Id: shape.Id}, &place)
		if err := migFailure("nvmlDeviceCreateGpuInstanceWithPlacement", ret); err != nil {
			return 0, err
		}
		info, ret := gi.GetInfo()
		return int(info.Id), migFailure("nvmlGpuInstanceGetInfo", ret)
	}
	return 0, fmt.Errorf("profile %s: %w", profile, ErrNotFound)
}

// findLegalPlace is the legal place of a profile that starts at a memory slice.
func findLegalPlace(handle nvml.Device, profile uint32, start int) (nvml.GpuInstancePlacement, error) {
	places, ret := handle.GetGpuInstancePossiblePlacements(&nvml.GpuInstanceProfileInfo{Id: profile})
	if err := migFailure("nvmlDeviceGetGpuInstancePossiblePlacements", ret); err != nil {
		return nvml.GpuInstancePlacement{}, err
	}
	for _, p := range places {
		if int(p.Start) == start {
			return p, nil
		}
	}
	return nvml.GpuInstancePlacement{}, fmt.Errorf("it cannot start at memory slice %d: %w", start, ErrNotFound)
}

// gpuInstance finds a GPU instance by its number. done is as of acquireForMIG.
func (r *NVML) gpuInstance(id sharing.DeviceID, number int, symbols ...string) (gi nvml.GpuInstance, done func(), err error) {
	handle, done, err := r.acquireForMIG(id, append(symbols, "nvmlDeviceGetGpuInstanceById")...)
	if err != nil {
		return nil, nil, err
	}
	gi, ret := handle.GetGpuInstanceById(number)
	if err := migFailure("nvmlDeviceGetGpuInstanceById", ret); err != nil {
		done()
		return nil, nil, err
	}
	return gi, done, nil
}

// CreateComputeInstance implements Partitions.
func (r *NVML) CreateComputeInstance(id sharing.DeviceID, number int) (ComputeInstance, error) {
	gi, done, err := r.gpuInstance(id, number, "nvmlGpuInstanceGetComputeInstanceProfileInfo", "nvmlGpuInstanceCreateComputeInstance", "nvmlComputeInstanceGetInfo_v2")
	if err != nil {
		return ComputeInstance{}, err
	}
	defer done()
	shapes, err := computeProfiles(gi)
	if err != nil {
		return ComputeInstance{}, err
	}
	if len(shapes) == 0 {
		return ComputeInstance{}, errors.New("the driver offers no compute instance")
	}
	// The largest is the one that spans the GPU instance.
	largest := shapes[0]
	for _, s := range shapes[1:] {
		if s.SliceCount > largest.SliceCount {
			largest = s
		}
	}
	ci, ret := gi.CreateComputeInstance(&largest)
	if err := migFailure("nvmlGpuInstanceCreateComputeInstance", ret); err != nil {
		return ComputeInstance{}, err
	}
	c, err := readComputeInstance(ci)
	c.Spans = true
	return c, err
}

// DestroyComputeInstance implements Partitions.
func (r *NVML) DestroyComputeInstance(id sharing.DeviceID, number, compute int) error {
	gi, done, err := r.gpuInstance(id, number, "nvmlGpuInstanceGetComputeInstanceById", "nvmlComputeInstanceDestroy")
	if err != nil {
		return err
	}
	defer done()
	ci, ret := gi.GetComputeInstanceById(compute)
	if err := migFailure("nvmlGpuInstanceGetComputeInstanceById", ret); err != nil {
		return err
	}
	return migFailure("nvmlComputeInstanceDestroy", ci.Destroy())
}

// DestroyGPUInstance implements Partitions.
func (r *NVML) DestroyGPUInstance(id sharing.DeviceID, number int) error {
	gi, done, err := r.gpuInstance(id, number, "nvmlGpuInstanceDestroy")
	if err != nil {
		return err
	}
	defer done()
	return migFailure("nvmlGpuInstanceDestroy", gi.Destroy())
}
