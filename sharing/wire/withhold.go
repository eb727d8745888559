// SPDX-License-Identifier: Apache-2.0

package wire

import "deviceshare/sharing"

// Withhold returns what the annotations of a node must say so that no scheduler places pods on its
// devices, which stay listed because pods hold shares of them. reason is for people. Only texts
// that are there and can be read are among the results: schedulers place nothing by the others. The
// amounts of the register text stay in their unit, whichever it is.
func Withhold(annotations map[string]string, reason string) map[string]string {
	out := map[string]string{}
	if inv, err := DecodeInventory(annotations[NodeInventory]); err == nil {
		text, err := EncodeInventory(markUnhealthy(inv, reason))
		if err != nil { // the reason is no line of text, or one too many
			text, err = EncodeInventory(markUnhealthy(inv, ""))
		}
		if err == nil {
			out[NodeInventory] = text
		}
	}
	if register := annotations[NodeRegister]; register != "" {
		if inv, err := DecodeRegister(register, 1); err == nil {
			out[NodeRegister] = EncodeRegister(markUnhealthy(inv, ""), 1)
		}
	}
	return out
}

func markUnhealthy(inv sharing.Inventory, reason string) sharing.Inventory {
	devices := make([]sharing.Device, 0, len(inv.Devices))
	for _, d := range inv.Devices {
		d.Healthy, d.Changing, d.Reason = false, false, reason
		devices = append(devices, d)
	}
	inv.Devices = devices
	return inv
}
