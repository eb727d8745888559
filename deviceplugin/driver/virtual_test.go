// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"deviceshare/deviceplugin/node"
)

func TestTheLicenceThatLastsLongestCounts(t *testing.T) {
	const ends = 4102444800 // 2100-01-01
	until := nvml.GridLicenseExpiry{Year: 2100, Month: 1, Day: 1, Status: nvml.GRID_LICENSE_EXPIRY_VALID}
	sooner := until
	sooner.Year = 2099
	feature := func(enabled, state uint32, e nvml.GridLicenseExpiry) nvml.GridLicensableFeature {
		return nvml.GridLicensableFeature{FeatureEnabled: enabled, FeatureState: state, LicenseExpiry: e}
	}
	status := func(s uint8) nvml.GridLicenseExpiry {
		return nvml.GridLicenseExpiry{Year: 2100, Month: 1, Day: 1, Status: s}
	}
	for name, c := range map[string]struct {
		features []nvml.GridLicensableFeature
		want     node.Licence
	}{
		"nothing can be licensed":           {nil, node.Licence{}},
		"not licensed":                      {[]nvml.GridLicensableFeature{feature(1, 0, until)}, node.Licence{}},
		"licensed, but not what is enabled": {[]nvml.GridLicensableFeature{feature(0, 1, until), feature(1, 0, until)}, node.Licence{}},
		"until a day":                       {[]nvml.GridLicensableFeature{feature(0, 0, until), feature(1, 1, until)}, node.Licence{Valid: true, Ends: ends}},
		"for ever":                          {[]nvml.GridLicensableFeature{feature(1, 1, status(nvml.GRID_LICENSE_EXPIRY_PERMANENT))}, node.Licence{Valid: true}},
		"without a word of its end":         {[]nvml.GridLicensableFeature{feature(1, 1, status(nvml.GRID_LICENSE_EXPIRY_NOT_AVAILABLE))}, node.Licence{Valid: true}},
		"with an end that cannot be read":   {[]nvml.GridLicensableFeature{feature(1, 1, status(nvml.GRID_LICENSE_EXPIRY_INVALID))}, node.Licence{Valid: true}},
		"in the year 4294967295":            {[]nvml.GridLicensableFeature{feature(1, 1, nvml.GridLicenseExpiry{Year: 1<<32 - 1, Status: nvml.GRID_LICENSE_EXPIRY_VALID})}, node.Licence{Valid: true}},
		"several":                           {[]nvml.GridLicensableFeature{feature(1, 1, sooner), feature(1, 1, until), feature(1, 0, until)}, node.Licence{Valid: true, Ends: ends}},
		"several, one for ever": {[]nvml.GridLicensableFeature{
			feature(1, 1, until), feature(1, 1, status(nvml.GRID_LICENSE_EXPIRY_NOT_APPLICABLE)), feature(1, 1, sooner),
		}, node.Licence{Valid: true}},
	} {
		t.Run(name, func(t *testing.T) {
			said := nvml.GridLicensableFeatures{LicensableFeaturesCount: uint32(len(c.features))}
			copy(said.GridLicensableFeatures[:], c.features)
			if got := readLicence(&said); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	if got := readLicence(&nvml.GridLicensableFeatures{LicensableFeaturesCount: 1<<32 - 1}); got.Valid {
		t.Errorf("more than there is room for: %+v", got)
	}
}
