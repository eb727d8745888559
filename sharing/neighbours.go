// SPDX-License-Identifier: Apache-2.0

package sharing

import (
	"maps"
	"slices"
	"strconv"
)

// Neighbours is what counts between pods that share a device: what a pod is to others, and which it
// accepts beside it. The rule is symmetric: two pods share a device if each accepts the other. The
// containers of one pod are no neighbours of each other. Nobody changes a value once it is made;
// nil is a pod of which nothing is known, and which accepts every other.
type Neighbours struct {
	// Group is the name of the pod's group in its namespace, "" for none.
	Group string
	// Labels are those of the pod at present.
	Labels map[string]string
	// Accepts says which pods may be there at all.
	Accepts Acceptance
	// Spread keeps the pod away from those of its group that are to be spread, too.
	Spread bool
	// Avoids are pods that must not be there.
	Avoids []Avoidance
}

// Acceptance is which pods a pod accepts as neighbours. The zero value is all.
type Acceptance uint8

// Which pods a pod accepts.
const (
	AcceptsAny Acceptance = iota
	AcceptsNamespace
	AcceptsGroup
	AcceptsNone
)

// Acceptances returns what users may write, in the order of the values.
func Acceptances() []string { return []string{"any", "namespace", "group", "none"} }

// String returns what users write.
func (a Acceptance) String() string {
	if names := Acceptances(); int(a) < len(names) {
		return names[a]
	}
	return "unknown"
}

// Avoidance is a rule by which a pod keeps other pods off its devices.
type Avoidance struct {
	Pods LabelSelector
	// Rule is how people wrote it, and where. Rules that are written alike are the same.
	Rule string
	// Mutual says that all pods which it names have it.
	Mutual bool
}

// LabelSelector names pods by labels, all of which they have. One without any names no pod.
type LabelSelector []LabelRequirement

// LabelRequirement is a label with one of several values, or with any if it lists none.
type LabelRequirement struct {
	Key    string
	Values []string
}

// Matches reports whether the selector names a pod with these labels.
func (s LabelSelector) Matches(labels map[string]string) bool {
	for i := range s {
		value, has := labels[s[i].Key]
		if !has || len(s[i].Values) > 0 && !slices.Contains(s[i].Values, value) {
			return false
		}
	}
	return len(s) > 0
}

// IsSelective reports whether the pod does not accept every other.
func (n *Neighbours) IsSelective() bool {
	return n != nil && (n.Accepts != AcceptsAny || n.Spread || len(n.Avoids) > 0)
}

// IsAlone reports whether the pod accepts no other: it takes all of each of its devices.
func (n *Neighbours) IsAlone() bool { return n != nil && n.Accepts == AcceptsNone }

// SelectsByName reports whether the pod accepts some that are not selective and refuses others, by
// their labels or groups.
func (n *Neighbours) SelectsByName() bool {
	return n != nil && (n.Accepts == AcceptsGroup || slices.ContainsFunc(n.Avoids, func(a Avoidance) bool { return !a.Mutual }))
}

// Rules is the same text for pods that have the same rules, "" for none.
func (n *Neighbours) Rules() string {
	if !n.IsSelective() {
		return ""
	}
	text := " neighbours " + n.Accepts.String()
	if n.Spread || n.Accepts == AcceptsGroup {
		text += " spread " + strconv.FormatBool(n.Spread) + " group " + n.Group
	}
	for i := range n.Avoids {
		text += " not beside " + n.Avoids[i].Rule
	}
	return text
}

// SpreadGroup returns the pod's group with its namespace if the pod wants it spread, else "".
func (n *Neighbours) SpreadGroup(namespace string) string {
	if n == nil || !n.Spread || n.Group == "" {
		return ""
	}
	if namespace == "" {
		return n.Group
	}
	return namespace + "/" + n.Group
}

// HasSameNames reports whether two pods have the same labels and the same group, by which others
// select them.
func (n *Neighbours) HasSameNames(m *Neighbours) bool {
	if n == nil || m == nil {
		return n == m
	}
	return n.Group == m.Group && maps.Equal(n.Labels, m.Labels)
}

// party is one of two pods that are to share a device.
type party struct {
	namespace string
	*Neighbours
}

// reasonAgainst returns why a pod does not accept another, Fits if it does.
func (p party) reasonAgainst(o party) Reason {
	if !p.IsSelective() {
		return Fits
	}
	switch {
	case p.Accepts == AcceptsNone:
		return WantsToBeAlone
	case p.Spread && o.Neighbours != nil && o.Spread && p.isOfGroup(o):
		return GroupAlreadyHere
	case p.Accepts == AcceptsNamespace && !p.isOfNamespace(o), p.Accepts == AcceptsGroup && !p.isOfGroup(o), p.avoidingRule(o) >= 0:
		return KeptApart
	}
	return Fits
}

func (p party) isOfNamespace(o party) bool { return p.namespace != "" && p.namespace == o.namespace }

func (p party) isOfGroup(o party) bool {
	return o.Neighbours != nil && p.Group != "" && p.Group == o.Group && p.namespace == o.namespace
}

// avoidingRule returns the rule by which a pod keeps another away, -1 for none.
func (p party) avoidingRule(o party) int {
	if o.Neighbours == nil {
		return -1
	}
	return slices.IndexFunc(p.Avoids, func(a Avoidance) bool { return a.Pods.Matches(o.Labels) })
}

// Clash is why two pods do not share a device.
type Clash struct {
	// Owner is the pod that is on the device.
	Owner Owner
	// Theirs says that it refuses the other, which accepts it.
	Theirs bool
	// Accepts is by what it is refused, unless it is by a rule or for its group.
	Accepts Acceptance
	// Rule is the rule, "" if it is none.
	Rule string
	// Reason is what is said of the device.
	Reason Reason
}

// FindClash returns why the pod must not be beside those on the device; false, and the reason Fits,
// if it may.
func (v *View) FindClash(pod *PodRequest) (Clash, bool) {
	mine := party{pod.Namespace, pod.Neighbours}
	for i := range v.held {
		h := &v.held[i]
		if h.Owner == pod.Owner {
			continue
		}
		theirs := party{h.Namespace, h.Neighbours}
		if reason := mine.reasonAgainst(theirs); reason != Fits {
			return mine.clashWith(theirs, Clash{Owner: h.Owner, Reason: reason}), true
		}
		if reason := theirs.reasonAgainst(mine); reason != Fits {
			return theirs.clashWith(mine, Clash{Owner: h.Owner, Theirs: true, Reason: KeptApart}), true
		}
	}
	return Clash{}, false
}

// clashWith completes a clash by what the pod has against the other one.
func (p party) clashWith(o party, c Clash) Clash {
	if i := p.avoidingRule(o); i >= 0 && p.Accepts != AcceptsNone {
		c.Rule = p.Avoids[i].Rule
	} else {
		c.Accepts = p.Accepts
	}
	return c
}

// isHeldAlone reports whether a pod is on the device that accepts no other.
func (v *View) isHeldAlone() bool {
	return v.usage.marks.has(heldSelective) && slices.ContainsFunc(v.held, func(h Held) bool { return h.Neighbours.IsAlone() })
}
