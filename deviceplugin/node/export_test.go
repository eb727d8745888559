// SPDX-License-Identifier: Apache-2.0

package node

import "deviceshare/sharing"

// Kinds returns every kind of condition, in the order in which they are declared.
func Kinds() []Kind {
	all := make([]Kind, 0, kinds)
	for k := range Kind(kinds) {
		all = append(all, k)
	}
	return all
}

// IDs returns the devices of the node that were ever found, also hidden ones.
func (s State) IDs() []sharing.DeviceID {
	ids := make([]sharing.DeviceID, 0, len(s.devices))
	for i := range s.devices {
		ids = append(ids, s.devices[i].facts.UUID)
	}
	return ids
}
