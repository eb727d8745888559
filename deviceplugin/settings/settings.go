// SPDX-License-Identifier: Apache-2.0

// Package settings is what the ConfigMaps say to one node: to its devices, as an event of the
// node's state, and to single containers, as terms.
package settings

import (
	"cmp"
	"fmt"
	"strings"
	"sync"

	"deviceshare/config"
	"deviceshare/config/live"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

// Configuration is the ConfigMaps as this node reads them. It is safe for concurrent
// use.
type Configuration struct {
	Watcher *live.Watcher
	Node    string
}

// ResourceName implements kubelet.Resource: the only resource of the device plugin
// protocol.
func (c Configuration) ResourceName() string { return c.Device().CountName }

// Device is the device ConfigMap in force.
func (c Configuration) Device() config.Device { return c.Watcher.Current().Device }

// Versions identifies what is in force.
func (c Configuration) Versions() wire.ConfigVersions {
	v := c.Watcher.Current()
	return wire.ConfigVersions{Device: v.Device.Hash(), Node: v.Node.Hash(), Geometry: v.Device.GeometryHash()}
}

// Terms is the terms in force.
func (c Configuration) Terms() Terms {
	v := c.Watcher.Current()
	return termsOf(v.Device, v.Node.For(c.Node))
}

// Terms is what the administrator set that concerns single containers.
type Terms struct {
	Names podspec.Names
	// PriorityName is the resource that carries the task priority; "" if there
	// is none.
	PriorityName string
	// Factor is the unit of memory amounts in the legacy annotations, in MiB.
	Factor int64
	// Policy is when compute limits apply: "", "default", "force" or "disable".
	Policy string
	// Interception is how libvgpu.so behaves in containers.
	Interception modes.Interception
}

// termsOf is a configuration as single containers of a node meet it. More memory given
// out than there is comes from the host when the card is full.
func termsOf(c config.Device, here config.NodeSettings) Terms {
	t := Terms{Names: c.Names(), PriorityName: c.PriorityName, Factor: c.MemoryFactor}
	switch {
	case c.DisableCoreLimit:
		t.Policy = "disable"
	case c.LeaveIdle:
		t.Policy = "force"
	}
	t.Interception = modes.Interception{
		ContextFree: c.ContextFree, KeepDeepbind: c.KeepDeepbind, StandIn: c.StandIn,
		Oversubscribe: isScaled(c, here),
	}
	return t
}

// isScaled reports whether some device of the node may give out more memory than it
// has.
func isScaled(c config.Device, here config.NodeSettings) bool {
	most := cmp.Or(here.MemoryScaling, c.MemoryScaling)
	for i := range here.Devices {
		most = max(most, here.Devices[i].MemoryScaling)
	}
	return most > 1
}

// Event is a version of the ConfigMaps as an event: Configured, or ConfigLost
// if nothing may be concluded from it.
func Event(v live.Value, nodeName string) node.Event {
	s := node.Settings{Offers: &offers{device: v.Device, here: v.Node.For(nodeName)}, GeometryHash: v.Device.GeometryHash(), Unit: v.Device.MemoryFactor}
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

// offers is one version of the configuration as it concerns this node. The answer for a device is
// kept: every look at the state asks for it, and matching the names of models takes most of a look.
type offers struct {
	device config.Device
	here   config.NodeSettings
	known  sync.Map // of deviceKey to node.Offer
}

// deviceKey is all that an offer depends on.
type deviceKey struct {
	id    sharing.DeviceID
	index int
	model string
}

func (o *offers) Offer(f *node.Facts) node.Offer {
	key := deviceKey{f.UUID, f.Index, f.Model}
	if known, is := o.known.Load(key); is {
		return known.(node.Offer)
	}
	d := o.here.Device(o.device, f.UUID, f.Index, f.Model)
	offer := node.Offer{
		Hidden: d.Hidden, Mode: d.Mode, Given: d.Given, MaxShares: d.MaxShares,
		MemoryScaling: d.MemoryScaling, CoreScaling: d.CoreScaling, MaxClients: d.MaxClients,
		Geometries: o.device.Geometries(f.Model), Policy: o.device.Policy(f.Model),
	}
	o.known.Store(key, offer)
	return offer
}
