// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// sessionDevices is the devices of one session. A device that falls silent stays silent
// for the rest of it: its handle and its events are not to be trusted, even if it
// answers again.
type sessionDevices struct {
	listed int
	order  []sharing.DeviceID
	handle map[sharing.DeviceID]driver.Device
	silent map[sharing.DeviceID]bool
}

func newSessionDevices(devices []driver.Device, found []node.Facts) *sessionDevices {
	r := &sessionDevices{listed: len(devices), handle: map[sharing.DeviceID]driver.Device{}, silent: map[sharing.DeviceID]bool{}}
	for i := range found {
		for _, d := range devices {
			if d.Index() == found[i].Index {
				r.order = append(r.order, found[i].UUID)
				r.handle[found[i].UUID] = d
			}
		}
	}
	return r
}

func (r *sessionDevices) answeringDevices() []driver.Device {
	handles := make([]driver.Device, 0, len(r.order))
	for _, id := range r.order {
		handles = append(handles, r.handle[id])
	}
	return handles
}
