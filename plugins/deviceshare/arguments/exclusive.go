// SPDX-License-Identifier: Apache-2.0

package arguments

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
)

// readExclusiveRules reads the rules of Volcano 1.15 that keep pods on different devices: a list of
// maps of labels. What a rule does not say exactly is read so that it concerns more pods, never
// fewer.
func (r *reader) readExclusiveRules(key string) nodes.ApartRules {
	r.known = append(r.known, key)
	given := r.in[key]
	if given == nil {
		return nil
	}
	list, ok := given.([]any)
	if !ok {
		r.addMistake(Withholding, key, "want a list of maps of labels, got %v (%T)", given, given)
		return nil
	}
	var out nodes.ApartRules
	for i, item := range list {
		labels, ok := labelsOf(item)
		if !ok {
			r.addMistake(Withholding, key, "[%d]: want a map of labels, got %v (%T)", i, item, item)
			continue
		}
		if len(labels) == 0 {
			r.addMistake(LeftOut, key, "[%d]: names no label, and concerns no pod", i)
			continue
		}
		rule, texts := sharing.Avoidance{Mutual: true}, []string{}
		for _, name := range slices.Sorted(maps.Keys(labels)) {
			one := sharing.LabelRequirement{Key: name}
			if text, isText := labels[name].(string); isText {
				one.Values = []string{text}
				name += "=" + text
			} else {
				value := labels[name]
				r.addMistake(LeftOut, key, "[%d].%s: want a text, got %v (%T): put it in quotes; until then any value of the label will do", i, name, value, value)
			}
			rule.Pods, texts = append(rule.Pods, one), append(texts, name)
		}
		rule.Rule = fmt.Sprintf("%s[%d]: %s", key, i, strings.Join(texts, ","))
		out = append(out, rule)
	}
	return out
}

// labelsOf returns a map from YAML by texts, false if it is none.
func labelsOf(item any) (map[string]any, bool) {
	switch m := item.(type) {
	case map[string]any:
		return m, true
	case map[any]any:
		out := make(map[string]any, len(m))
		for k, v := range m {
			name, ok := k.(string)
			if !ok {
				return nil, false
			}
			out[name] = v
		}
		return out, true
	}
	return nil, false
}
