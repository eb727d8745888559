// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"errors"
	"fmt"
	"slices"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// given is what pods were given of one device.
type given struct {
	memory sharing.Bytes
	cores  sharing.Percent
	shares int
}

// checkDevices returns an error if a pod has no placement, or if a device was given away beyond
// what it has. A scheduler that is fast because it gives a share twice is none.
func checkDevices(pods map[podName]seenPod) error {
	devices := map[sharing.DeviceID]given{}
	var errs []error
	for name, p := range pods {
		placement, err := wire.DecodePlacement(p.placement)
		if err != nil {
			errs = append(errs, fmt.Errorf("pod %s has no placement: %w", name.name, err))
			continue
		}
		for i := range placement.Containers {
			for _, s := range placement.Containers[i].Shares {
				d := devices[s.Device]
				d.memory, d.cores, d.shares = d.memory.Plus(s.Memory), d.cores+s.Cores, d.shares+1
				devices[s.Device] = d
			}
		}
	}
	for id, d := range devices {
		if d.memory > sharing.MiBs(deviceMemory) || d.cores > 100 || d.shares > sharesOfDevice {
			errs = append(errs, fmt.Errorf("device %s was given away twice: %d shares, %d MiB, %d %%", id, d.shares, d.memory.WholeMiB(), d.cores))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return len(a.Error()) - len(b.Error()) })
	return errors.Join(errs[:min(len(errs), 5)]...)
}
