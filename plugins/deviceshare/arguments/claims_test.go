// SPDX-License-Identifier: Apache-2.0

package arguments

import (
	"testing"

	"volcano.sh/volcano/pkg/scheduler/conf"

	"deviceshare/plugins/deviceshare/nodes"
)

func TestClaimsAreAllocatedWhereVolcanosPluginIsToldTo(t *testing.T) {
	for name, c := range map[string]struct {
		tiers    []conf.Tier
		argument any
		want     bool
	}{
		"without an argument":            {tiersOf("gang deviceshare", "predicates"), nil, false},
		"turned on":                      {tiersOf("gang deviceshare", "predicates"), true, true},
		"turned off":                     {tiersOf("gang deviceshare predicates"), false, false},
		"a text, which Volcano ignores":  {tiersOf("predicates deviceshare"), "true", false},
		"another plugin has it":          {tiersOf("deviceshare nodeorder"), true, false},
		"the plugin has no say at nodes": {withoutPredicate(tiersOf("deviceshare predicates")), true, false},
		"no plugins":                     {nil, nil, false},
	} {
		for _, tier := range c.tiers {
			for i := range tier.Plugins {
				if o := &tier.Plugins[i]; c.argument != nil && o.Name != "deviceshare" {
					o.Arguments = map[string]any{"predicate.DynamicResourceAllocationEnable": c.argument}
				}
			}
		}
		if got := AllocatesClaims(c.tiers); got != c.want {
			t.Errorf("%s: allocates claims: %v", name, got)
		}
	}
}

func withoutPredicate(tiers []conf.Tier) []conf.Tier {
	for _, tier := range tiers {
		for i := range tier.Plugins {
			tier.Plugins[i].EnabledPredicate = new(bool)
		}
	}
	return tiers
}

// Nodes and requests are read again where the settings are another value.
func TestSettingsAreAnotherValueOnlyWhenSomethingChanged(t *testing.T) {
	var m Memory
	plain := nodes.DefaultSettings()
	m.Read(nil)
	if got := m.Complete(&plain, false); got != &plain {
		t.Error("settings to which nothing is added are another value")
	}
	with := m.Complete(&plain, true)
	if !with.AllocatesClaims || plain.AllocatesClaims {
		t.Errorf("claims are allocated: %v; before: %v", with.AllocatesClaims, plain.AllocatesClaims)
	}
	if m.Complete(&plain, true) != with {
		t.Error("the same settings are another value in the next session")
	}
	if got := m.Complete(&plain, false); got.AllocatesClaims {
		t.Error("claims are allocated after the argument is gone")
	}
	m.Read(map[string]any{"deviceshare.GPUExclusiveRules": []any{map[string]any{"a": "b"}}})
	ruled := m.Complete(&plain, false)
	if len(ruled.Apart) != 1 || ruled.AllocatesClaims || m.Complete(&plain, false) != ruled {
		t.Errorf("with a rule: %+v", ruled)
	}
	if both := m.Complete(&plain, true); len(both.Apart) != 1 || !both.AllocatesClaims {
		t.Errorf("with both: %+v", both)
	}
	other := nodes.DefaultSettings()
	other.Factor = 7
	if got := m.Complete(&other, true); got.Factor != 7 || len(got.Apart) != 1 {
		t.Errorf("after an edit of the device configuration: %+v", got)
	}
}
