// SPDX-License-Identifier: Apache-2.0

package node

import (
	"math"

	"deviceshare/sharing"
)

// Amounts are amounts of the three resources as the kubelet counts them, memory in the unit that
// is configured.
type Amounts struct{ Number, Memory, Cores int64 }

// Holding is what one pod of the node holds until it has ended. The kubelet counts it from the
// moment in which the pod is bound.
type Holding struct {
	Owner          sharing.Owner
	Namespace, Pod string
	// Asked is what the pod's spec adds up to by the kubelet's rules. It never changes, whatever
	// becomes of the unit.
	Asked Amounts
	// Placement is what the pod was given; empty if that cannot be read.
	Placement sharing.Placement
}

// Holdings: the pods of the node, or what the kubelet has recorded of them.
type Holdings struct {
	Pods []Holding // in ascending order of owners
	// Slots are those that the kubelet recorded for pods of the node, and Doubtful those of owners
	// that are not known: they have ended, or are too new. Both are sorted.
	Slots, Doubtful []string
}

func (e Holdings) applyTo(s *State) { s.holdings = e }

func (h *Holdings) totalAsked() Amounts {
	var sum Amounts
	for i := range h.Pods {
		sum = sum.plus(h.Pods[i].Asked)
	}
	return sum
}

func (a Amounts) plus(b Amounts) Amounts {
	return Amounts{addWithoutWrap(a.Number, b.Number), addWithoutWrap(a.Memory, b.Memory), addWithoutWrap(a.Cores, b.Cores)}
}

func (a Amounts) atLeast(b Amounts) Amounts {
	return Amounts{max(a.Number, b.Number), max(a.Memory, b.Memory), max(a.Cores, b.Cores)}
}

// addWithoutWrap adds amounts; negative ones, which only a hostile text can hold, count as nothing.
func addWithoutWrap(a, b int64) int64 {
	a, b = max(a, 0), max(b, 0)
	if b > math.MaxInt64-a {
		return math.MaxInt64
	}
	return a + b
}
