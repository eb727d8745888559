// SPDX-License-Identifier: Apache-2.0

package arguments

import (
	"slices"
	"strings"

	"volcano.sh/volcano/pkg/scheduler/conf"
)

// TierMistakes returns one sentence for each action in which the tiers let other plugins
// overrule this one about whom to evict.
//
// Volcano takes the victims of the first tier that allows any. Plugins of an earlier tier
// choose without this one. Those of a later tier are asked when this one says that no
// eviction helps; they evict by sums, without the limits of gang and conformance. Within
// a tier Volcano starts over with the next plugin when those before it agree on nobody:
// one plugin after this one cannot allow more than this one does, two can.
func TierMistakes(tiers []conf.Tier, preempt, reclaim bool) []string {
	var said []string
	if preempt {
		said = append(said, overrulersOf("preempt", tiers, func(o *conf.PluginOption) bool { yes, _ := selectsVictims(o); return yes })...)
	}
	if reclaim {
		said = append(said, overrulersOf("reclaim", tiers, func(o *conf.PluginOption) bool { _, yes := selectsVictims(o); return yes })...)
	}
	return said
}

// overrulersOf is TierMistakes for one action; evicts selects the plugins that have a say
// in it. It is no mistake if this plugin has none: somebody configured it so.
func overrulersOf(action string, tiers []conf.Tier, evicts func(*conf.PluginOption) bool) []string {
	own := func(o conf.PluginOption) bool { return o.Name == PluginName && evicts(&o) }
	ours := slices.IndexFunc(tiers, func(t conf.Tier) bool { return slices.ContainsFunc(t.Plugins, own) })
	var elsewhere, after []string
	for i := range tiers {
		behind := false
		for j := range tiers[i].Plugins {
			switch o := &tiers[i].Plugins[j]; {
			case !evicts(o):
			case i != ours:
				elsewhere = append(elsewhere, o.Name)
			case o.Name == PluginName:
				behind = true
			case behind:
				after = append(after, o.Name)
			}
		}
	}
	switch {
	case ours >= 0 && len(elsewhere) > 0:
		return []string{action + ": in another tier: " + strings.Join(elsewhere, ", ")}
	case ours >= 0 && len(after) > 1:
		return []string{action + ": behind it, where only one may be: " + strings.Join(after, ", ")}
	}
	return nil
}

// selectsVictims reports whether a plugin of Volcano, with these options, says which pods
// may be preempted and which may be reclaimed.
func selectsVictims(o *conf.PluginOption) (preempts, reclaims bool) {
	on := func(b *bool) bool { return b != nil && *b }
	asked := func(key string) bool { verb, _ := o.Arguments[key].(string); return verb != "" }
	switch o.Name {
	case "gang", "conformance", "pdb", "cdp", PluginName:
		preempts, reclaims = true, true
	case "priority", "tdm":
		preempts = true
	case "drf":
		preempts, reclaims = true, on(o.EnabledHierarchy)
	case "proportion", "capacity":
		reclaims = true
	case "extender":
		preempts, reclaims = asked("extender.preemptableVerb"), asked("extender.reclaimableVerb")
	}
	return preempts && on(o.EnabledPreemptable), reclaims && on(o.EnabledReclaimable)
}
