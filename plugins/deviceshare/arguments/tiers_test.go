// SPDX-License-Identifier: Apache-2.0

package arguments

import (
	"slices"
	"strings"
	"testing"

	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/plugins"
)

// tiersOf are tiers of plugins by name, with Volcano's defaults; a name with a minus
// has no say about preemption.
func tiersOf(tiers ...string) []conf.Tier {
	var out []conf.Tier
	for _, names := range tiers {
		var t conf.Tier
		for _, name := range strings.Fields(names) {
			bare, minus := strings.CutPrefix(name, "-")
			o := conf.PluginOption{Name: bare}
			if minus {
				o.EnabledPreemptable = new(bool)
			}
			plugins.ApplyPluginConfDefaults(&o)
			t.Plugins = append(t.Plugins, o)
		}
		out = append(out, t)
	}
	return out
}

func TestTiersInWhichPodsWouldBeEvictedInVainAreToldFromOthers(t *testing.T) {
	for name, c := range map[string]struct {
		tiers []conf.Tier
		want  []string
	}{
		"one tier":                        {tiersOf("priority gang conformance deviceshare overcommit -drf predicates proportion nodeorder binpack"), nil},
		"sums in a later tier":            {tiersOf("priority gang conformance deviceshare", "overcommit -drf predicates proportion"), []string{"reclaim: in another tier: proportion"}},
		"both in a later tier":            {tiersOf("gang deviceshare", "drf capacity"), []string{"preempt: in another tier: drf", "reclaim: in another tier: capacity"}},
		"limits in an earlier tier":       {tiersOf("-gang", "deviceshare proportion"), []string{"reclaim: in another tier: gang"}},
		"two behind it":                   {tiersOf("deviceshare gang conformance"), []string{"preempt: behind it, where only one may be: gang, conformance", "reclaim: behind it, where only one may be: gang, conformance"}},
		"others that evict nobody":        {tiersOf("deviceshare", "predicates nodeorder binpack overcommit"), nil},
		"this plugin has no say":          {tiersOf("-deviceshare", "priority"), nil},
		"this plugin is not there at all": {tiersOf("gang", "proportion"), nil},
	} {
		if got := TierMistakes(c.tiers, true, true); !slices.Equal(got, c.want) {
			t.Errorf("%s: said %q, want %q", name, got, c.want)
		}
		if got := TierMistakes(c.tiers, false, false); len(got) > 0 {
			t.Errorf("%s: neither action runs and it said %q", name, got)
		}
	}
}
