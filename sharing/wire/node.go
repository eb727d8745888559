// SPDX-License-Identifier: Apache-2.0

package wire

import "deviceshare/sharing"

// NodeAnnotations is what a node publishes: the inventory as JSON and in the legacy
// grammar, to be written together. It is an error if the inventory is not valid
// or too long; then nothing must be written.
func NodeAnnotations(inv sharing.Inventory, factor int64) (map[string]string, error) {
	text, err := EncodeInventory(inv)
	if err != nil {
		return nil, err
	}
	return map[string]string{NodeInventory: text, NodeRegister: EncodeRegister(inv, factor)}, nil
}

// HandshakeAnnotation returns key and value of the sign of life that Volcano's
// scheduler up to v1.14.2 and v1.15.0 wants beside the register text: without it
// that scheduler sees no devices, and once it has answered it forgets them after
// a minute in which the value was not renewed. now is the time in any form; it is
// for people, that scheduler does not read it.
func HandshakeAnnotation(now string) (key, value string) {
	return NodeHandshake, "Reported " + now
}

// ReasonReleased is the reason of every device of a node whose device plugin does not use the
// driver, because of NodeReleaseDriver. It is how commands see that.
const ReasonReleased = "the device plugin has released the driver of this node: new pods wait until it uses it again"

// NodeKeys returns the keys of the annotations of a node that ReadNode and ReadCordons read.
func NodeKeys() []string { return []string{NodeInventory, NodeRegister, NodeCordon} }

// ReadNode reads the devices of a node: from the JSON text, else from the legacy one.
// Nothing found is not an error: the node does not share devices. A text that is
// wrong is an error, even if the other one is right. So is a JSON text that names
// another node, and two texts that disagree about which devices there are, their
// mode or their health: then one is stale, left by a device plugin that no longer
// runs, and nothing says which.
func ReadNode(annotations map[string]string, node string, factor int64) (inv sharing.Inventory, found bool, err error) {
	text, complete := annotations[NodeInventory]
	register, isRegistered := annotations[NodeRegister]
	if !complete {
		if register == "" {
			return sharing.Inventory{}, false, nil
		}
		if inv, err = DecodeRegister(register, factor); err != nil {
			return sharing.Inventory{}, false, err
		}
		inv.Node = node
		return inv, true, nil
	}
	if inv, err = DecodeInventory(text); err != nil {
		return sharing.Inventory{}, false, err
	}
	if inv.Node != node {
		return sharing.Inventory{}, false, &Error{inventoryFormat, "node", "is " + quoteExcerpt(inv.Node) + " on node " + quoteExcerpt(node)}
	}
	if isRegistered {
		if err := checkRegister(inv, register, factor); err != nil {
			return sharing.Inventory{}, false, err
		}
	}
	return inv, true, nil
}

// checkRegister compares a register text with the one the inventory would give. Amounts
// are left out, since the factor may just have been changed.
func checkRegister(inv sharing.Inventory, register string, factor int64) error {
	got, err := DecodeRegister(register, factor)
	if err != nil {
		return err
	}
	want, err := DecodeRegister(EncodeRegister(inv, factor), factor)
	if err != nil {
		return err
	}
	stale := &Error{inventoryFormat, "", "disagrees with " + NodeRegister + ": remove the one of the device plugin that no longer runs"}
	if len(got.Devices) != len(want.Devices) {
		return stale
	}
	for i := range got.Devices {
		g, w := &got.Devices[i], &want.Devices[i]
		if g.ID != w.ID || g.Mode != w.Mode || g.Healthy != w.Healthy {
			return stale
		}
	}
	return nil
}
