// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"fmt"
	"slices"
	"strings"

	"deviceshare/deviceplugin/kubelet"
	"deviceshare/sharing"
)

// Way is how amounts of memory and compute are offered to the kubelet.
type Way string

// The ways. The kubelet lets a resource be in the node's capacity only when it
// has forgotten that a device plugin once offered it: until then it writes 0
// over ours and turns new pods away.
const (
	// InCapacity: in the node's capacity, written by us.
	InCapacity Way = "node-status"
	// AsDevices: one kubelet device per unit, as the old device plugin did.
	AsDevices Way = "device-plugin"
	// Waiting: neither. The scheduler sees 0 and sends no pods until the kubelet
	// has forgotten the old device plugin, five minutes after it went.
	Waiting Way = "waiting"
)

// MostUnits is how many kubelet devices fit into one message of the protocol:
// 4 MiB at about 66 bytes each.
const MostUnits = 60000

// Choose says how to offer the amounts, and why for people. setting is auto,
// node-status or device-plugin; record is what the kubelet recorded; live reports
// whether a pod still runs. units is how many kubelet devices AsDevices would take.
func Choose(setting string, record kubelet.Record, names []string, live func(sharing.Owner) bool, units int64) (Way, string) {
	holders := 0
	for _, h := range record.Held {
		if slices.Contains(names, h.Resource) && live(h.Owner) {
			holders++
		}
	}
	registered := slices.ContainsFunc(record.Registered, func(r string) bool { return slices.Contains(names, r) })
	resources := strings.Join(names, " and ")
	fits := units <= MostUnits
	tooMany := fmt.Sprintf("%d kubelet devices would be needed for %s and %d fit into a message: raise gpuMemoryFactor, or delete the pods of the old device plugin",
		units, resources, MostUnits)
	switch {
	case setting == string(InCapacity):
		return InCapacity, explainForced(resources, holders, registered)
	case setting == string(AsDevices) && fits:
		return AsDevices, ""
	case setting == string(AsDevices):
		return Waiting, tooMany
	case holders > 0 && fits:
		return AsDevices, fmt.Sprintf("%d containers hold %s from the device plugin that ran here before; they are offered in its way until those containers are gone", holders, resources)
	case holders > 0:
		return Waiting, tooMany
	case registered:
		return Waiting, fmt.Sprintf("the kubelet still remembers %s from the device plugin that ran here before; this node takes new pods when it has forgotten, within about five minutes", resources)
	}
	return InCapacity, ""
}

// explainForced warns when the administrator's choice meets the trap.
func explainForced(resources string, holders int, registered bool) string {
	if holders == 0 && !registered {
		return ""
	}
	return fmt.Sprintf("--memory-resources=node-status, but the kubelet remembers %s from the device plugin that ran here before (%d containers hold some): "+
		"new pods on this node fail until those are gone and five minutes have passed; drain the node or use --memory-resources=auto", resources, holders)
}
