// SPDX-License-Identifier: Apache-2.0

package nvml

import (
	"fmt"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"

	"deviceshare/sharing"
	"deviceshare/sharing/mps/mpsnode"
)

// generation reads the major compute capability of a device and the CUDA version
// of its driver, 1000 times major plus 10 times minor; 0 where the driver does not
// say.
func (d *realDevice) generation() (major, cuda int) {
	if d.driver.has("nvmlDeviceGetCudaComputeCapability") {
		if m, _, ret := d.handle.GetCudaComputeCapability(); ret == gonvml.SUCCESS {
			major = m
		}
	}
	if v, ret := d.driver.lib.SystemGetCudaDriverVersion(); ret == gonvml.SUCCESS {
		cuda = v
	}
	return major, cuda
}

// computeFailure turns a return code about compute modes into an error that
// mpsnode tells apart.
func computeFailure(call string, ret gonvml.Return) error {
	switch ret {
	case gonvml.ERROR_NO_PERMISSION:
		return fmt.Errorf("%s: %w", call, mpsnode.ErrNoPermission)
	case gonvml.ERROR_NOT_SUPPORTED, gonvml.ERROR_FUNCTION_NOT_FOUND:
		return fmt.Errorf("%s: %w", call, mpsnode.ErrNotSupported)
	}
	return failure(call, ret)
}

// reach finds a device for a call. Until done is called the library stays, see
// partitioned.
func (r *Real) reach(id sharing.DeviceID, call string) (handle gonvml.Device, done func(), err error) {
	if err := r.begin(); err != nil {
		return nil, nil, err
	}
	done = func() { _ = r.end() }
	if !r.has(call) {
		done()
		return nil, nil, fmt.Errorf("this driver has no %s: %w", call, mpsnode.ErrNotSupported)
	}
	handle, ret := r.lib.DeviceGetHandleByUUID(string(id))
	if err := failure("nvmlDeviceGetHandleByUUID", ret); err != nil {
		done()
		return nil, nil, fmt.Errorf("find device %s: %w", id, err)
	}
	return handle, done, nil
}

// ComputeMode implements mpsnode.Hardware.
func (r *Real) ComputeMode(id sharing.DeviceID) (mpsnode.ComputeMode, error) {
	handle, done, err := r.reach(id, "nvmlDeviceGetComputeMode")
	if err != nil {
		return 0, err
	}
	defer done()
	mode, ret := handle.GetComputeMode()
	return mpsnode.ComputeMode(mode), computeFailure("nvmlDeviceGetComputeMode", ret)
}

// SetComputeMode implements mpsnode.Hardware.
func (r *Real) SetComputeMode(id sharing.DeviceID, mode mpsnode.ComputeMode) error {
	handle, done, err := r.reach(id, "nvmlDeviceSetComputeMode")
	if err != nil {
		return err
	}
	defer done()
	return computeFailure("nvmlDeviceSetComputeMode", handle.SetComputeMode(gonvml.ComputeMode(mode)))
}
