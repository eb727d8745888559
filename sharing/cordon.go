// SPDX-License-Identifier: Apache-2.0

package sharing

import "slices"

// Cordon is an order of people that a device takes no new pods. Those on it stay and start again
// there, unless it is drained.
type Cordon struct {
	// Drains says that the pods on the device have to leave it.
	Drains bool
	// Reason is why, and By who says so; "" where they do not say.
	Reason, By string
	// Since is when it was ordered, and Until when it ends, as 2026-01-31T15:04:05Z: such texts are
	// in the order of time. "" where they do not say.
	Since, Until string
}

// IsOver reports whether the cordon has ended at a time.
func (c *Cordon) IsOver(now string) bool { return c.Until != "" && now >= c.Until }

// String is the cordon for people: "drained by carol until 2026-01-31T15:04:05Z: fan".
func (c *Cordon) String() string {
	text := "cordoned"
	if c.Drains {
		text = "drained"
	}
	if c.By != "" {
		text += " by " + c.By
	}
	if c.Until != "" {
		text += " until " + c.Until
	}
	if c.Reason != "" {
		text += ": " + c.Reason
	}
	return text
}

// Cordons are the cordons of one node by devices, which need not be there.
type Cordons map[DeviceID]Cordon

// ApplyTo returns an inventory with the cordons that are not over, and when the first of them ends:
// "" if none does. The inventory is unchanged.
func (c Cordons) ApplyTo(inv Inventory, now string) (cordoned Inventory, ends string) {
	devices := slices.Clone(inv.Devices)
	for i := range devices {
		one, is := c[devices[i].ID]
		if !is || one.IsOver(now) {
			continue
		}
		devices[i].Cordon = &one
		if one.Until != "" && (ends == "" || one.Until < ends) {
			ends = one.Until
		}
	}
	inv.Devices = devices
	return inv, ends
}
