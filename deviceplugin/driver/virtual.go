// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"deviceshare/deviceplugin/node"
)

// isVirtual reports whether the machine is virtual and the device a part of a GPU that its host has
// given to it. A driver that cannot say so drives no such device.
func (d *nvmlDevice) isVirtual() bool {
	if !d.driver.hasSymbol("nvmlDeviceGetVirtualizationMode") {
		return false
	}
	mode, ret := d.handle.GetVirtualizationMode()
	return ret == nvml.SUCCESS && mode == nvml.GPU_VIRTUALIZATION_MODE_VGPU
}

// Licence implements Device.
func (d *nvmlDevice) Licence() (node.Licence, error) {
	if d.broken != nil {
		return node.Licence{}, d.broken
	}
	// The binding would call an older version, which does not say when a licence ends.
	const call = "nvmlDeviceGetGridLicensableFeatures_v4"
	if !d.isVirtual() || !d.driver.hasSymbol(call) {
		return node.Licence{}, ErrUnsupported
	}
	features, ret := d.handle.GetGridLicensableFeatures()
	if err := nvmlFailure(call, ret); err != nil {
		return node.Licence{}, err
	}
	if features.IsGridLicenseSupported == 0 {
		return node.Licence{}, ErrUnsupported
	}
	return readLicence(&features), nil
}

// readLicence returns the licence that lasts longest of those that are in force. A driver lists
// what can be licensed, of which a device needs one.
func readLicence(features *nvml.GridLicensableFeatures) node.Licence {
	var best node.Licence
	for i := range min(int(features.LicensableFeaturesCount), len(features.GridLicensableFeatures)) {
		f := &features.GridLicensableFeatures[i]
		if f.FeatureEnabled == 0 || f.FeatureState == 0 {
			continue
		}
		ends := readLicenceEnd(&f.LicenseExpiry)
		if !best.Valid || ends == 0 || best.Ends != 0 && ends > best.Ends {
			best = node.Licence{Valid: true, Ends: ends}
		}
	}
	return best
}

// readLicenceEnd returns the end in seconds since 1970, 0 if there is none, or none that can be
// read.
func readLicenceEnd(e *nvml.GridLicenseExpiry) int64 {
	if e.Status != nvml.GRID_LICENSE_EXPIRY_VALID || e.Year < 1970 || e.Year > 9999 {
		return 0
	}
	day := time.Date(int(e.Year), time.Month(e.Month), int(e.Day), 0, 0, 0, 0, time.UTC).Unix()
	return day + int64(e.Hour)*3600 + int64(e.Min)*60 + int64(e.Sec)
}
