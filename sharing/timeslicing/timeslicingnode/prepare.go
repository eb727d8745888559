// SPDX-License-Identifier: Apache-2.0

// Package timeslicingnode prepares containers of mode time-slicing. They get the device and
// nothing else: the driver switches between them, and nothing limits what one of them takes.
// Setting can also set the length of a time slice.
package timeslicingnode

import (
	"context"

	"deviceshare/sharing"
	"deviceshare/sharing/nodeapi"
)

// Preparer implements nodeapi.Preparer. It has no effects and no state.
type Preparer struct{}

// New returns a preparer.
func New() *Preparer { return &Preparer{} }

// Mode implements nodeapi.Preparer.
func (*Preparer) Mode() sharing.Mode { return sharing.TimeSlicing }

// Prepare implements nodeapi.Preparer.
func (p *Preparer) Prepare(_ context.Context, c nodeapi.Claim) (nodeapi.Injection, error) {
	if err := c.Check(p.Mode()); err != nil {
		return nodeapi.Injection{}, err
	}
	in := nodeapi.Injection{Devices: make([]sharing.DeviceID, 0, len(c.Devices))}
	for i := range c.Devices {
		in.Devices = append(in.Devices, c.Devices[i].Device.ID)
	}
	return in, nil
}

// Unprepare implements nodeapi.Preparer.
func (*Preparer) Unprepare(context.Context, sharing.Owner) error { return nil }
