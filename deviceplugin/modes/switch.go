// SPDX-License-Identifier: Apache-2.0

package modes

import (
	"context"
	"fmt"

	"deviceshare/sharing"
)

// Switcher is an optional power of a preparer whose mode is a state of the device
// itself: partitions must be switched on, a control daemon must run. The caller
// guarantees that nobody holds a share of the device while Enter or Leave works.
// Both are idempotent and may be repeated after a crash between any two of their
// effects.
type Switcher interface {
	Preparer
	// Entered reports whether the device is in the state this mode needs, or has
	// anything left of it: as long as it is true another mode must not be entered.
	Entered(ctx context.Context, d sharing.Device) (bool, error)
	// Enter brings a device into the mode. A *Manual says that only an
	// administrator can.
	Enter(ctx context.Context, d sharing.Device) error
	// Leave takes the device out of the mode. A *Manual says that only an
	// administrator can.
	Leave(ctx context.Context, d sharing.Device) error
}

// Manual is the answer when a change needs an administrator: it is told as an
// event and tried again when something changed, not in a tight loop.
type Manual struct {
	Device sharing.DeviceID
	Why    string // what stands in the way
	Do     string // what to do about it, as one would type it
}

// Error implements error.
func (m *Manual) Error() string {
	return fmt.Sprintf("device %s: %s: %s", m.Device, m.Why, m.Do)
}
