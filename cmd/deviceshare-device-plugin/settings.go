// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"strings"

	"deviceshare/config"
	"deviceshare/config/live"
	"deviceshare/deviceplugin/discovery"
	"deviceshare/deviceplugin/lifecycle"
	"deviceshare/sharing"
	"deviceshare/sharing/nodeapi"
)

// settings is the configuration in force as discovery wants it. serves reports
// which modes this node can prepare; nil means any.
func settings(v live.Value, node string, serves func(sharing.Mode) bool) discovery.Settings {
	here := v.Node.For(node)
	return discovery.Settings{
		Hold: hold(v),
		Device: func(f *discovery.Found) discovery.Offer {
			d := here.Device(v.Device, f.UUID, f.Index, f.Model)
			return discovery.Offer{
				Hidden: d.Hidden, Mode: d.Mode, Given: d.Given, MaxShares: d.MaxShares,
				MemoryScaling: d.MemoryScaling, CoreScaling: d.CoreScaling, MaxClients: d.MaxClients,
			}
		},
		Geometries:   func(model string) []sharing.Geometry { return v.Device.Geometries(model) },
		Policy:       v.Device.Policy,
		GeometryHash: v.Device.GeometryHash(),
		Serves:       serves,
	}
}

// hold is why nothing may be concluded from a configuration, "" if it may.
func hold(v live.Value) string {
	var names []string
	if v.DeviceUnread {
		names = append(names, config.DeviceName)
	}
	if v.NodeUnread {
		names = append(names, config.NodeName)
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("ConfigMap %s cannot be used and this node knows no earlier good version of it: no device changes its mode or takes new pods until it is corrected",
		strings.Join(names, " and ConfigMap "))
}

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
