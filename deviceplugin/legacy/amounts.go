// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"fmt"
	"slices"
	"strings"

	"deviceshare/deviceplugin/kubelet"
	"deviceshare/sharing"
)

// AmountSource is where the kubelet has the node's amounts of memory and compute
// from.
type AmountSource string

// The sources. The kubelet lets a resource be in the node's capacity only when it
// has forgotten that a device plugin once offered it: until then it writes 0
// over ours and turns new pods away.
const (
	// FromNodeStatus: the device plugin writes the node's capacity.
	FromNodeStatus AmountSource = "node-status"
	// FromDevicePlugin: one kubelet device per unit, the legacy way.
	FromDevicePlugin AmountSource = "device-plugin"
	// FromNone: the scheduler sees 0 and sends no pods until the kubelet has
	// forgotten the legacy device plugin, five minutes after it went.
	FromNone AmountSource = "waiting"
)

// maxUnits is how many kubelet devices fit into one message of the protocol:
// 4 MiB at about 66 bytes each.
const maxUnits = 60000

// ChooseAmountSource says how to offer the amounts. The error says why they cannot simply
// be in the node's status, or what goes wrong if they are; it is nil where nothing stands
// in the way. setting is auto, node-status or device-plugin; record is what the kubelet
// recorded; live reports whether a pod still runs. units is how many kubelet devices
// FromDevicePlugin would take.
func ChooseAmountSource(setting string, record kubelet.Record, names []string, live func(sharing.Owner) bool, units int64) (AmountSource, error) {
	holders := 0
	for _, h := range record.Held {
		if slices.Contains(names, h.Resource) && live(h.Owner) {
			holders++
		}
	}
	registered := slices.ContainsFunc(record.Registered, func(r string) bool { return slices.Contains(names, r) })
	resources := strings.Join(names, " and ")
	fits := units <= maxUnits
	tooMany := fmt.Errorf("%d kubelet devices would be needed for %s and %d fit into a message: raise gpuMemoryFactor, or delete the pods of the legacy device plugin",
		units, resources, maxUnits)
	switch {
	case setting == string(FromNodeStatus):
		return FromNodeStatus, forcedStatusWarning(resources, holders, registered)
	case setting == string(FromDevicePlugin) && fits:
		return FromDevicePlugin, nil
	case setting == string(FromDevicePlugin):
		return FromNone, tooMany
	case holders > 0 && fits:
		return FromDevicePlugin, fmt.Errorf("%d containers hold %s from the device plugin that ran here before; they are offered in its way until those containers are gone", holders, resources)
	case holders > 0:
		return FromNone, tooMany
	case registered:
		return FromNone, fmt.Errorf("the kubelet still remembers %s from the device plugin that ran here before; this node takes new pods when it has forgotten, within about five minutes", resources)
	}
	return FromNodeStatus, nil
}

// forcedStatusWarning is the warning that the administrator's choice fails pods, nil if it does
// not.
func forcedStatusWarning(resources string, holders int, registered bool) error {
	if holders == 0 && !registered {
		return nil
	}
	return fmt.Errorf("--memory-resources=node-status, but the kubelet remembers %s from the device plugin that ran here before (%d containers hold some): "+
		"new pods on this node fail until those are gone and five minutes have passed; drain the node or use --memory-resources=auto", resources, holders)
}
