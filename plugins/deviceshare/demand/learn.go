// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
)

// Seen is a node of the cluster.
type Seen struct {
	Node *corev1.Node
	// Inventory is nil if the node publishes no devices.
	Inventory *sharing.Inventory
	// TakesPods says that pods with devices are placed on the node, and IsJoining that it is so new
	// that its devices may yet come.
	TakesPods, IsJoining bool
	// Idle is what is not asked for of the node's amounts, as autoscalers add up.
	Idle Amounts
}

// Known is what is known of node types.
type Known struct {
	// Types are in the order of their names.
	Types []NodeType
	// Write are texts that the ConfigMap has not, or not so, by type.
	Write map[string]string
	// Problems are texts in it that cannot be read, or are not true, one line each.
	Problems []string
}

// Learn says which types of nodes there are: as the nodes of the cluster show, or else the
// ConfigMap. What people wrote into it is never changed.
func Learn(texts map[string]string, seen []Seen, typeLabel string, s *nodes.Settings) Known {
	k, byName := Known{Write: map[string]string{}}, map[string]NodeType{}
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		t, err := ParseType(name, texts[name], s)
		if err != nil {
			k.Problems = append(k.Problems, err.Error())
			continue
		}
		byName[name] = t
	}
	complete := map[string][]Seen{}
	for i := range seen {
		if n := &seen[i]; n.TakesPods && isComplete(n.Inventory) && n.Node.Labels[typeLabel] != "" {
			complete[n.Node.Labels[typeLabel]] = append(complete[n.Node.Labels[typeLabel]], *n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(complete)) {
		k.learnFrom(name, complete[name], byName, texts)
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		k.Types = append(k.Types, byName[name])
	}
	return k
}

// learnFrom takes in what the complete nodes of a type show.
func (k *Known) learnFrom(name string, of []Seen, byName map[string]NodeType, texts map[string]string) {
	said, isKnown := byName[name]
	if isKnown && slices.ContainsFunc(of, func(n Seen) bool { return offerText(n.Inventory) == offerText(said.Inventory) }) {
		return
	}
	n := slices.MinFunc(of, func(a, b Seen) int { return cmp.Compare(a.Node.Name, b.Node.Name) })
	shown, err := TypeOf(name, n.Node, n.Inventory)
	if err != nil {
		k.Problems = append(k.Problems, err.Error())
		return
	}
	byName[name] = shown
	switch _, isWritten := texts[name]; {
	case isKnown && said.LearnedFrom == "":
		k.Problems = append(k.Problems, fmt.Sprintf("node type %s: node.metadata.annotations: %s of this type offers %s, here stands %s: what the node offers counts",
			name, n.Node.Name, describeDevices(shown.Inventory), describeDevices(said.Inventory)))
	case isWritten && !isKnown: // it cannot be read, and is not ours to mend
	default:
		text, err := shown.Text()
		if err != nil {
			k.Problems = append(k.Problems, err.Error())
			return
		}
		k.Write[name] = text
	}
}

// describeDevices is an inventory in few words.
func describeDevices(inv *sharing.Inventory) string {
	if len(inv.Devices) == 0 {
		return "no devices"
	}
	d := &inv.Devices[0]
	return fmt.Sprintf("%d devices, the first %s with %d MiB and %d slots in mode %s",
		len(inv.Devices), cmp.Or(d.Model, "of an unknown model"), d.Memory.WholeMiB(), d.MaxShares, d.Mode)
}
