// SPDX-License-Identifier: Apache-2.0

package main

import (
	"deviceshare/config"
	"deviceshare/config/live"
	"deviceshare/deviceplugin/discovery"
	"deviceshare/deviceplugin/lifecycle"
	"deviceshare/sharing"
)

// settings is the configuration in force as discovery wants it. serves reports
// which modes this node can prepare; nil means any.
func settings(v live.Value, node string, serves func(sharing.Mode) bool) discovery.Settings {
	here := v.Node.For(node)
	return discovery.Settings{
		Device: func(f *discovery.Found) discovery.Offer {
			d := here.Device(v.Device, f.UUID, f.Index, f.Model)
			return discovery.Offer{
				Hidden: d.Hidden, Mode: d.Mode, MaxShares: d.MaxShares,
				MemoryScaling: d.MemoryScaling, CoreScaling: d.CoreScaling,
			}
		},
		Geometries:   func(model string) []sharing.Geometry { return v.Device.Geometries(model) },
		GeometryHash: v.Device.GeometryHash(),
		Serves:       serves,
	}
}

// terms is the configuration in force as single containers meet it.
func terms(c config.Device) lifecycle.Terms {
	t := lifecycle.Terms{Names: c.Names(), PriorityName: c.PriorityName, Factor: c.MemoryFactor}
	if c.DisableCoreLimit {
		t.Policy = "disable"
	}
	return t
}
