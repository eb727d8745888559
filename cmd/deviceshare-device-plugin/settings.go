// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"

	"deviceshare/config"
	"deviceshare/deviceplugin/lifecycle"
	"deviceshare/sharing/nodeapi"
)

// terms is the configuration in force as single containers of a node meet it.
// More memory given out than there is comes from the host when the card is full.
func terms(c config.Device, here config.NodeSettings) lifecycle.Terms {
	t := lifecycle.Terms{Names: c.Names(), PriorityName: c.PriorityName, Factor: c.MemoryFactor}
	switch {
	case c.DisableCoreLimit:
		t.Policy = "disable"
	case c.LeaveIdle:
		t.Policy = "force"
	}
	t.Interception = nodeapi.Interception{
		ContextFree: c.ContextFree, KeepDeepbind: c.KeepDeepbind, StandIn: c.StandIn,
		Oversubscribe: scaled(c, here),
	}
	return t
}

// scaled reports whether some device of the node may give out more memory than it has.
func scaled(c config.Device, here config.NodeSettings) bool {
	most := cmp.Or(here.MemoryScaling, c.MemoryScaling)
	for i := range here.Devices {
		most = max(most, here.Devices[i].MemoryScaling)
	}
	return most > 1
}
