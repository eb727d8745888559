// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"sigs.k8s.io/yaml"

	"deviceshare/sharing/request"
)

// hashConfig hashes the labels that the scheduler's configuration names, which keep pods on
// different devices.
func (l labelHasher) hashConfig(text *string) *string {
	return editConfig(text, func(config map[string]any) {
		for _, tier := range listIn(config, "tiers") {
			for _, plugin := range listIn(tier, "plugins") {
				arguments := mapIn(plugin, "arguments")
				if rules, there := arguments[request.ExclusiveRules]; there {
					arguments[request.ExclusiveRules] = l.hashRules(rules)
				}
			}
		}
	})
}

// withoutComments returns a configuration without its comments, which may hold names.
func withoutComments(text *string) *string { return editConfig(text, func(map[string]any) {}) }

// editConfig returns a configuration as edit leaves it, without comments; nil stays. One that
// cannot be read becomes one that cannot be read either.
func editConfig(text *string, edit func(config map[string]any)) *string {
	if text == nil {
		return nil
	}
	edited := unreadable
	var config map[string]any
	if yaml.UnmarshalStrict([]byte(*text), &config) == nil {
		edit(config)
		if out, err := yaml.Marshal(config); err == nil {
			edited = string(out)
		}
	}
	return &edited
}

// hashRules hashes a list of maps of labels. What is none of these may hold names.
func (l labelHasher) hashRules(given any) any {
	rules, ok := given.([]any)
	if !ok {
		return unreadable
	}
	for i, rule := range rules {
		labels, ok := rule.(map[string]any)
		if !ok {
			rules[i] = unreadable
			continue
		}
		hashed := make(map[string]any, len(labels))
		for key, value := range labels {
			if text, is := value.(string); is {
				value = l.hashLabelValue(key, text)
			}
			hashed[l.hashLabelKey(key)] = value
		}
		rules[i] = hashed
	}
	return rules
}

// listIn is a list in a map, nil if there is none.
func listIn(in any, key string) []any {
	fields, _ := in.(map[string]any)
	list, _ := fields[key].([]any)
	return list
}

// mapIn is a map in a map, nil if there is none.
func mapIn(in any, key string) map[string]any {
	fields, _ := in.(map[string]any)
	inner, _ := fields[key].(map[string]any)
	return inner
}
