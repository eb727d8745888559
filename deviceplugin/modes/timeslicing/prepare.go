// SPDX-License-Identifier: Apache-2.0

// Package timeslicing prepares containers of mode time-slicing. They get the device and
// nothing else: the driver switches between them, and nothing limits what one of them takes.
// Setting can also set the length of a time slice.
package timeslicing

import (
	"context"

	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// Preparer implements modes.Preparer. It has no effects and no state.
type Preparer struct{}

// New returns a preparer.
func New() *Preparer { return &Preparer{} }

// Mode implements modes.Preparer.
func (*Preparer) Mode() sharing.Mode { return sharing.TimeSlicing }

// Prepare implements modes.Preparer.
func (p *Preparer) Prepare(_ context.Context, c modes.Claim) (modes.Injection, error) {
	if err := c.Check(p.Mode()); err != nil {
		return modes.Injection{}, err
	}
	in := modes.Injection{Devices: make([]sharing.DeviceID, 0, len(c.Devices))}
	for i := range c.Devices {
		in.Devices = append(in.Devices, c.Devices[i].Device.ID)
	}
	return in, nil
}

// Unprepare implements modes.Preparer.
func (*Preparer) Unprepare(context.Context, sharing.Owner) error { return nil }
