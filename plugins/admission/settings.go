// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"deviceshare/config"
	"deviceshare/sharing/request"
)

// Settings are what the webhook judges by. A Settings value is not changed once
// it is in use; a new configuration is a new value.
type Settings struct {
	// Rules are by what pods are read.
	request.Rules
	// Schedulers are the names of the schedulers that give GPU shares. The first
	// is written into pods that name none.
	Schedulers []string
	// Count is the number of devices that is written where it was left out.
	Count int64
	// Writers are the users who may change the annotations by which pods hold
	// devices.
	Writers []string
	// Unasked is what becomes of devices that containers would get without asking for any.
	Unasked Unasked
	// AskedBy are the resources of other device plugins by which containers ask for devices. A * at
	// the end stands for any end of a name.
	AskedBy []string
}

// NewSettings takes from the device configuration what the webhook needs.
func NewSettings(d config.Device, schedulers []string) Settings {
	return Settings{
		Rules:      request.Rules{Names: d.Names(), Factor: d.MemoryFactor, Defaults: d.Defaults()},
		Schedulers: schedulers, Count: d.DefaultCount,
	}
}
