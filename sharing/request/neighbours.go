// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"
	"slices"
	"strings"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

// mostSelectors is how many selectors a pod may name, and mostRequirements how many labels each: a
// pod that arrives is compared with all of them.
const mostSelectors, mostRequirements = 16, 16

// Neighbours reads what counts between a pod and others on its devices. It is the part of Read that
// matters of a pod which has its devices. With mistakes, it accepts no other pod: what somebody
// wrote to keep others away must not let them come.
func Neighbours(p *podspec.Pod) (*sharing.Neighbours, []Mistake) {
	r := &reader{}
	if n := r.readNeighbours(p); len(r.mistakes) == 0 {
		return n, nil
	}
	return &sharing.Neighbours{Labels: p.Labels, Accepts: sharing.AcceptsNone}, r.mistakes
}

func (r *reader) readNeighbours(p *podspec.Pod) *sharing.Neighbours {
	a := podAnnotations(p.Annotations)
	n := &sharing.Neighbours{Labels: p.Labels, Group: a.groupName()}
	if spread, ok := a.lookupKnown(wire.UserGroupPolicy); ok {
		if n.Spread = spread == wire.GroupSpread; !n.Spread {
			r.addMistake(annotationPath(wire.UserGroupPolicy), fmt.Sprintf("unknown policy %q: want %s", spread, wire.GroupSpread))
		}
	}
	if text, ok := a.lookupKnown(wire.UserNeighbours); ok {
		known := sharing.Acceptances()
		at := slices.Index(known, text)
		if n.Accepts = sharing.Acceptance(max(at, 0)); at < 0 {
			r.addMistake(annotationPath(wire.UserNeighbours), fmt.Sprintf("unknown value %q: want one of %s", text, strings.Join(known, ", ")))
		}
	}
	if text, ok := a.lookupKnown(wire.UserNotBeside); ok {
		n.Avoids = r.readSelectors(wire.UserNotBeside, text)
	}
	return n
}

// groupName is the pod's group. A pod that has none yet has it as soon as a controller has given it
// one.
func (t podAnnotations) groupName() string {
	for _, key := range []string{wire.GroupName, wire.VolcanoGroupName} {
		if name, _ := t.lookupKnown(key); name != "" {
			return name
		}
	}
	return ""
}

// readSelectors reads selectors of pods with semicolons between them.
func (r *reader) readSelectors(key, text string) (avoids []sharing.Avoidance) {
	items := strings.Split(text, ";")
	if len(items) > mostSelectors {
		r.addMistake(annotationPath(key), fmt.Sprintf("%d selectors, want at most %d", len(items), mostSelectors))
		return nil
	}
	for i, item := range items {
		item = strings.TrimSpace(item)
		selector, wrong := parseSelector(item)
		for _, w := range wrong {
			r.addMistake(annotationPath(key), fmt.Sprintf("selector %d: %s", i+1, w))
		}
		if len(wrong) == 0 {
			avoids = append(avoids, sharing.Avoidance{Pods: selector, Rule: key + ": " + item})
		}
	}
	return avoids
}

// ExclusiveRules is the argument of the scheduler's configuration by which an administrator keeps
// pods on different devices: a list of maps of labels, as in Volcano 1.15.
const ExclusiveRules = "deviceshare.GPUExclusiveRules"

// ReplaceLabels returns selectors as wire.UserNotBeside holds them with other keys and values;
// false if they cannot be read.
func ReplaceLabels(text string, key func(string) string, value func(key, value string) string) (string, bool) {
	r := &reader{}
	var selectors []string
	for _, a := range r.readSelectors(wire.UserNotBeside, text) {
		var labels []string
		for _, l := range a.Pods {
			item := key(l.Key)
			if len(l.Values) > 0 {
				var values []string
				for _, v := range l.Values {
					values = append(values, value(l.Key, v))
				}
				item += " in (" + strings.Join(values, ",") + ")"
			}
			labels = append(labels, item)
		}
		selectors = append(selectors, strings.Join(labels, ","))
	}
	return strings.Join(selectors, ";"), len(r.mistakes) == 0
}

// parseSelector reads labels that a pod has, in the way of kubectl: with commas between
// "key=value", "key==value", "key in (value, value)" and "key" for any value. It returns all that
// is wrong. That a pod has no such label is nothing to be kept away for.
func parseSelector(text string) (s sharing.LabelSelector, wrong []string) {
	items := splitOutsideParentheses(text)
	if len(items) > mostRequirements {
		return nil, []string{fmt.Sprintf("%d labels, want at most %d", len(items), mostRequirements)}
	}
	for _, item := range items {
		requirement, problem := parseRequirement(strings.TrimSpace(item))
		if problem != "" {
			wrong = append(wrong, problem)
			continue
		}
		s = append(s, requirement)
	}
	return s, wrong
}

// splitOutsideParentheses splits at commas that are not within parentheses.
func splitOutsideParentheses(text string) (items []string) {
	depth, from := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				items, from = append(items, text[from:i]), i+1
			}
		}
	}
	return append(items, text[from:])
}

func parseRequirement(text string) (r sharing.LabelRequirement, wrong string) {
	key, list, isList := cutSet(text)
	value, hasValue := "", false
	if !isList {
		key, value, hasValue = strings.Cut(text, "=")
		value = strings.TrimPrefix(value, "=")
	}
	key = strings.TrimSpace(key)
	switch {
	case text == "":
		return r, "is empty: want labels of pods, such as app=llm"
	case strings.HasPrefix(text, "!"), strings.HasSuffix(key, "!"), strings.Contains(text, " notin "):
		return r, fmt.Sprintf("%q names pods by what they are not: want labels that they have, or say with %s who may be there", text, wire.UserNeighbours)
	case !isLabelKey(key):
		return r, fmt.Sprintf("%q is no label: want key=value, key in (value, value), or key for any value", text)
	case isList:
		r.Values = strings.Split(list, ",")
	case hasValue:
		r.Values = []string{value}
	}
	for i := range r.Values {
		if r.Values[i] = strings.TrimSpace(r.Values[i]); !isLabelValue(r.Values[i]) {
			return r, fmt.Sprintf("%q is no value of a label", r.Values[i])
		}
	}
	r.Key = key
	return r, ""
}

// cutSet cuts "key in (list)" into key and list.
func cutSet(text string) (key, list string, ok bool) {
	head, rest, found := strings.Cut(text, "(")
	list, closed := strings.CutSuffix(rest, ")")
	words := strings.Fields(head)
	if !found || !closed || strings.ContainsAny(list, "()") || len(words) != 2 || words[1] != "in" {
		return "", "", false
	}
	return words[0], list, true
}

// isLabelKey reports whether a text may be the key of a label: a name, and a domain with a slash
// before it, if there is one.
func isLabelKey(key string) bool {
	domain, name, has := strings.Cut(key, "/")
	if !has {
		return key != "" && isLabelValue(key)
	}
	return isDomain(domain) && name != "" && isLabelValue(name)
}

const (
	lowerAndDigits = "abcdefghijklmnopqrstuvwxyz0123456789"
	alphanumeric   = lowerAndDigits + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// isLabelValue follows the rule of Kubernetes for labels: at most 63 characters, which begin and
// end with a letter or a digit. The empty value is one.
func isLabelValue(s string) bool {
	return s == "" || len(s) <= 63 && isWithin(s, alphanumeric, "-_.")
}

// isDomain follows the rule of Kubernetes for the part of a key before the slash.
func isDomain(s string) bool {
	return len(s) <= 253 && !slices.ContainsFunc(strings.Split(s, "."), func(part string) bool { return !isWithin(part, lowerAndDigits, "-") })
}

// isWithin reports whether a text has only characters of two sets, and begins and ends with those
// of the first.
func isWithin(s, ends, between string) bool {
	return s != "" && strings.Trim(s, ends+between) == "" && strings.ContainsRune(ends, rune(s[0])) && strings.ContainsRune(ends, rune(s[len(s)-1]))
}
