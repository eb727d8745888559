// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"strings"

	"deviceshare/config"
	"deviceshare/config/live"
	"deviceshare/deviceplugin/node"
)

// SettingsEvent is a version of the ConfigMaps as an event: Configured, or ConfigLost
// if nothing may be concluded from it.
func SettingsEvent(v live.Value, nodeName string) node.Event {
	s := node.Settings{Offers: offers{v.Device, v.Node.For(nodeName)}, GeometryHash: v.Device.GeometryHash()}
	var unread []string
	if v.DeviceUnread {
		unread = append(unread, config.DeviceName)
	}
	if v.NodeUnread {
		unread = append(unread, config.NodeName)
	}
	if len(unread) == 0 {
		return node.Configured{Settings: s}
	}
	return node.ConfigLost{Settings: s, Why: fmt.Sprintf(
		"ConfigMap %s cannot be used and this node knows no earlier good version of it: no device changes its mode or takes new pods until it is corrected",
		strings.Join(unread, " and ConfigMap "))}
}

// offers is one version of the configuration as it concerns this node.
type offers struct {
	device config.Device
	here   config.NodeSettings
}

// Offer implements node.Offers.
func (o offers) Offer(f *node.Facts) node.Offer {
	d := o.here.Device(o.device, f.UUID, f.Index, f.Model)
	return node.Offer{
		Hidden: d.Hidden, Mode: d.Mode, Given: d.Given, MaxShares: d.MaxShares,
		MemoryScaling: d.MemoryScaling, CoreScaling: d.CoreScaling, MaxClients: d.MaxClients,
		Geometries: o.device.Geometries(f.Model), Policy: o.device.Policy(f.Model),
	}
}
