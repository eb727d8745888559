// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"deviceshare/sharing"
)

// generation reads the major compute capability of a device and the CUDA version
// of its driver, 1000 times major plus 10 times minor; 0 where the driver does not
// say.
func (d *nvmlDevice) generation() (major, cuda int) {
	if d.driver.has("nvmlDeviceGetCudaComputeCapability") {
		if m, _, ret := d.handle.GetCudaComputeCapability(); ret == nvml.SUCCESS {
			major = m
		}
	}
	if v, ret := d.driver.Library().SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
		cuda = v
	}
	return major, cuda
}

// reach finds a device for a call, see find.
func (r *NVML) reach(id sharing.DeviceID, call string) (handle nvml.Device, done func(), err error) {
	return r.find(id, failure, call)
}

// ComputeMode implements ComputeModes.
func (r *NVML) ComputeMode(id sharing.DeviceID) (ComputeMode, error) {
	handle, done, err := r.reach(id, "nvmlDeviceGetComputeMode")
	if err != nil {
		return 0, err
	}
	defer done()
	mode, ret := handle.GetComputeMode()
	return ComputeMode(mode), failure("nvmlDeviceGetComputeMode", ret)
}

// SetComputeMode implements ComputeModes.
func (r *NVML) SetComputeMode(id sharing.DeviceID, mode ComputeMode) error {
	handle, done, err := r.reach(id, "nvmlDeviceSetComputeMode")
	if err != nil {
		return err
	}
	defer done()
	return failure("nvmlDeviceSetComputeMode", handle.SetComputeMode(nvml.ComputeMode(mode)))
}
