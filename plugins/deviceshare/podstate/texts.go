// SPDX-License-Identifier: Apache-2.0

package podstate

import "deviceshare/sharing/wire"

// Texts are the annotations from which a placement is read. Empty ones are absent: a
// pod with an empty text cannot be read and is never Bound.
type Texts struct {
	Placement, Assigned, Node string
	// Modes is written by the user. The legacy text is checked against it.
	Modes string
}

// TextsOf returns the texts among annotations.
func TextsOf(annotations map[string]string) Texts {
	return Texts{
		Placement: annotations[wire.PodPlacement], Assigned: annotations[wire.PodAssigned],
		Node: annotations[wire.PodNode], Modes: annotations[wire.UserMode],
	}
}

// SameIn reports whether annotations hold what the scheduler wrote. The user's modes
// may differ.
func (t Texts) SameIn(annotations map[string]string) bool {
	now := TextsOf(annotations)
	now.Modes = t.Modes
	return now == t
}

// Annotations returns the texts as a pod carries them.
func (t Texts) Annotations() map[string]string {
	out := make(map[string]string, 4)
	for key, text := range map[string]string{
		wire.PodPlacement: t.Placement, wire.PodAssigned: t.Assigned, wire.PodNode: t.Node, wire.UserMode: t.Modes,
	} {
		if text != "" {
			out[key] = text
		}
	}
	return out
}
