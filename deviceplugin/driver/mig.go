// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"bytes"
	"errors"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// readMIG reads the partition mode and the profiles with their legal places. A
// device without MIG is no mistake.
func (d *nvmlDevice) readMIG() (node.MIG, error) {
	if !d.driver.hasSymbol("nvmlDeviceGetMigMode") {
		return node.MIG{}, nil
	}
	current, pending, ret := d.handle.GetMigMode()
	if err := nvmlFailure("nvmlDeviceGetMigMode", ret); err != nil {
		if errors.Is(err, ErrUnsupported) {
			return node.MIG{}, nil
		}
		return node.MIG{}, err
	}
	m := node.MIG{Capable: true, Enabled: current == nvml.DEVICE_MIG_ENABLE, Pending: pending == nvml.DEVICE_MIG_ENABLE}
	if !d.driver.hasSymbol("nvmlDeviceGetGpuInstanceProfileInfoV") || !d.driver.hasSymbol("nvmlDeviceGetGpuInstancePossiblePlacements_v2") {
		return m, nil
	}
	for number := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		profile, slices, err := d.readProfile(number)
		if errors.Is(err, ErrUnsupported) {
			continue
		}
		if err != nil {
			return node.MIG{}, err
		}
		m.Profiles = append(m.Profiles, profile)
		m.Slices = max(m.Slices, slices)
	}
	return m, nil
}

// readProfile reads one profile and how many memory slices its last place reaches.
func (d *nvmlDevice) readProfile(number int) (sharing.Profile, int, error) {
	info, ret := d.handle.GetGpuInstanceProfileInfoV(number).V2()
	if ret == nvml.ERROR_INVALID_ARGUMENT {
		// A driver older than the list of profiles does not know the number.
		return sharing.Profile{}, 0, ErrUnsupported
	}
	if err := nvmlFailure("nvmlDeviceGetGpuInstanceProfileInfoV", ret); err != nil {
		return sharing.Profile{}, 0, err
	}
	places, ret := d.handle.GetGpuInstancePossiblePlacements(&nvml.GpuInstanceProfileInfo{Id: info.Id})
	if err := nvmlFailure("nvmlDeviceGetGpuInstancePossiblePlacements", ret); err != nil {
		return sharing.Profile{}, 0, err
	}
	if len(places) == 0 {
		return sharing.Profile{}, 0, ErrUnsupported
	}
	p := sharing.Profile{
		Name:    profileName(info.Name[:]),
		Memory:  sharing.MiBs(int64(min(info.MemorySizeMB, uint64(sharing.MaxBytes/sharing.MiB)))),
		Compute: int(info.SliceCount),
		Max:     int(info.InstanceCount),
	}
	reach := 0
	for _, place := range places {
		p.Starts = append(p.Starts, int(place.Start))
		p.Size = int(place.Size)
		reach = max(reach, int(place.Start+place.Size))
	}
	slices.Sort(p.Starts)
	return p, reach, nil
}

// profileName is a profile's name as people write it: "3g.40gb".
func profileName(raw []uint8) string { return strings.TrimPrefix(decodeCString(raw), "MIG ") }

func decodeCString(raw []uint8) string {
	if end := bytes.IndexByte(raw, 0); end >= 0 {
		raw = raw[:end]
	}
	return string(raw)
}
