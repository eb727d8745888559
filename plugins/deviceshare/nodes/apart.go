// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"deviceshare/sharing/wire"
)

// ApartRules keep pods on different devices: two pods that match the same rule never share one.
type ApartRules []ApartRule

// ApartRule concerns the pods that have all of its labels. It has at least one.
type ApartRule struct {
	// Name says where the rule is written.
	Name   string
	Labels []ApartLabel
}

// ApartLabel is a label that a pod must have, with the value or with any.
type ApartLabel struct {
	Key, Value string
	Any        bool
}

func (l ApartLabel) isPresentIn(labels map[string]string) bool {
	value, has := labels[l.Key]
	return has && (l.Any || value == l.Value)
}

func (r ApartRule) matchesLabels(labels map[string]string) bool {
	return !slices.ContainsFunc(r.Labels, func(l ApartLabel) bool { return !l.isPresentIn(labels) })
}

// coversPodsOf reports whether every pod that the other rule concerns is a pod of this one.
func (r ApartRule) coversPodsOf(other ApartRule) bool {
	return !slices.ContainsFunc(r.Labels, func(l ApartLabel) bool {
		return !slices.ContainsFunc(other.Labels, func(o ApartLabel) bool {
			return l.Key == o.Key && (l.Any || !o.Any && l.Value == o.Value)
		})
	})
}

// Reduce returns the rules without those that an earlier or wider one makes superfluous.
func (r ApartRules) Reduce() ApartRules {
	var out ApartRules
	for i, rule := range r {
		if !slices.ContainsFunc(r[:i], func(o ApartRule) bool { return o.coversPodsOf(rule) }) &&
			!slices.ContainsFunc(r[i+1:], func(o ApartRule) bool { return o.coversPodsOf(rule) && !rule.coversPodsOf(o) }) {
			out = append(out, rule)
		}
	}
	return out
}

// apartPrefix begins the group of a rule, which is made of what the rule says: an edit of other
// rules leaves the groups of pods as they are.
const apartPrefix = "deviceshare.GPUExclusiveRules/"

func (r ApartRule) groupName() string {
	var said []string
	for _, l := range r.Labels {
		said = append(said, fmt.Sprintf("%q=%q,%v", l.Key, l.Value, l.Any))
	}
	slices.Sort(said)
	sum := sha256.Sum256([]byte(strings.Join(said, ";")))
	return apartPrefix + hex.EncodeToString(sum[:8])
}

// Group returns the group of a pod that has labels and its own group, "" if it has none. A pod
// with two groups cannot be placed: a device knows one of each pod.
func (r ApartRules) Group(labels map[string]string, own string) (string, error) {
	found := -1
	for i, rule := range r {
		switch {
		case !rule.matchesLabels(labels):
		case found >= 0:
			return "", fmt.Errorf("its labels match %s and %s, and a pod can be kept apart by one rule only: change its labels or the rules", r[found].Name, rule.Name)
		case own != "":
			return "", fmt.Errorf("its labels match %s, and it has the annotation %s, of which one only can hold: remove the annotation, or change its labels",
				rule.Name, wire.UserGroupPolicy)
		default:
			found = i
		}
	}
	if found < 0 {
		return own, nil
	}
	return r[found].groupName(), nil
}

// effectiveGroup returns the group that a pod counts as on its devices: by the rules in force,
// which may be newer than the placement. Where several could hold, which no new pod is given, a
// rule comes first.
func (r ApartRules) effectiveGroup(labels map[string]string, own string) string {
	for _, rule := range r {
		if rule.matchesLabels(labels) {
			return rule.groupName()
		}
	}
	if strings.HasPrefix(own, apartPrefix) {
		return ""
	}
	return own
}
