// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"deviceshare/sharing"
)

// readComputeVersions reads the major compute capability of a device and the CUDA version
// of its driver, 1000 times major plus 10 times minor; 0 where the driver does not
// say.
func (d *nvmlDevice) readComputeVersions() (major, cuda int) {
	if d.driver.hasSymbol("nvmlDeviceGetCudaComputeCapability") {
		if m, _, ret := d.handle.GetCudaComputeCapability(); ret == nvml.SUCCESS {
			major = m
		}
	}
	if v, ret := d.driver.Library().SystemGetCudaDriverVersion(); ret == nvml.SUCCESS {
		cuda = v
	}
	return major, cuda
}

// acquireForCompute finds a device for a call, see acquireDevice.
func (r *NVML) acquireForCompute(id sharing.DeviceID, call string) (handle nvml.Device, done func(), err error) {
	return r.acquireDevice(id, nvmlFailure, call)
}

// ComputeMode implements ComputeModes.
func (r *NVML) ComputeMode(id sharing.DeviceID) (ComputeMode, error) {
	handle, done, err := r.acquireForCompute(id, "nvmlDeviceGetComputeMode")
	if err != nil {
		return 0, err
	}
	defer done()
	mode, ret := handle.GetComputeMode()
	return ComputeMode(mode), nvmlFailure("nvmlDeviceGetComputeMode", ret)
}

// SetComputeMode implements ComputeModes.
func (r *NVML) SetComputeMode(id sharing.DeviceID, mode ComputeMode) error {
	handle, done, err := r.acquireForCompute(id, "nvmlDeviceSetComputeMode")
	if err != nil {
		return err
	}
	defer done()
	return nvmlFailure("nvmlDeviceSetComputeMode", handle.SetComputeMode(nvml.ComputeMode(mode)))
}
