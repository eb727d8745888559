// SPDX-License-Identifier: Apache-2.0

package plan_test

import "deviceshare/sharing"

// clusterNear is which neighbours a pod accepts: none, or all but those with a label.
type clusterNear struct {
	label, avoids string
	alone         bool
}

// clashes reports whether two pods must not be on one device.
func (p clusterNear) clashes(q clusterNear) bool {
	return p.alone || q.alone || p.avoids != "" && p.avoids == q.label || q.avoids != "" && q.avoids == p.label
}

// asRequested is what the product reads of it.
func (p clusterNear) asRequested() *sharing.Neighbours {
	n := &sharing.Neighbours{Labels: map[string]string{"is": p.label}}
	if p.alone {
		n.Accepts = sharing.AcceptsNone
	}
	if p.avoids != "" {
		n.Avoids = []sharing.Avoidance{{Pods: sharing.LabelSelector{{Key: "is", Values: []string{p.avoids}}}, Rule: p.avoids}}
	}
	return n
}

func (d dice) near() clusterNear {
	texts := []string{"", "", "a", "b"}
	return clusterNear{label: texts[d.IntN(4)], avoids: texts[d.IntN(4)], alone: d.IntN(6) == 0}
}
