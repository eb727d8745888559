// SPDX-License-Identifier: Apache-2.0

package arguments

import (
	"fmt"

	"deviceshare/plugins/deviceshare/nodes"
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
		at := fmt.Sprintf("%s[%d]", key, i)
		labels, ok := labelsOf(item)
		if !ok {
			r.addMistake(Withholding, key, "[%d]: want a map of labels, got %v (%T)", i, item, item)
			continue
		}
		if len(labels) == 0 {
			r.addMistake(LeftOut, key, "[%d]: names no label, and concerns no pod", i)
			continue
		}
		rule := nodes.ApartRule{Name: at}
		for name, value := range labels {
			text, isText := value.(string)
			if !isText {
				r.addMistake(LeftOut, key, "[%d].%s: want a text, got %v (%T): put it in quotes; until then any value of the label will do", i, name, value, value)
			}
			rule.Labels = append(rule.Labels, nodes.ApartLabel{Key: name, Value: text, Any: !isText})
		}
		out = append(out, rule)
	}
	return out.Reduce()
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
