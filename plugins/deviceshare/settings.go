// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"deviceshare/sharing"
	"deviceshare/sharing/request"
)

// Settings is what the device configuration says to the scheduler. A value is
// never changed; an edit of the configuration makes a new one.
type Settings struct {
	// Names are the resource names pods ask with.
	Names request.Names
	// Factor is the MiB that one unit of the memory resource counts.
	Factor int64
	// Defaults are what a container gets where it does not say.
	Defaults request.Defaults
	// Geometries returns the partition layouts allowed on a model, for nodes
	// that publish none themselves. Nil knows no layouts.
	Geometries func(model string) []sharing.Geometry
}

// DefaultSettings are in force until a configuration was read.
func DefaultSettings() Settings {
	return Settings{Names: request.DefaultNames(), Factor: 1}
}

// withGeometries fills in the layouts of devices that can be cut and whose node
// did not say how. Nodes that run an older device plugin do not.
func (s *Settings) withGeometries(inv *sharing.Inventory) {
	if s.Geometries == nil {
		return
	}
	for i := range inv.Devices {
		d := &inv.Devices[i]
		if d.Mode != sharing.MIG || (d.MIG != nil && len(d.MIG.Profiles) > 0) {
			continue
		}
		var p sharing.Partitioning
		if d.MIG != nil {
			p = *d.MIG
		}
		p.Geometries = s.Geometries(d.Model)
		d.MIG = &p
	}
}
