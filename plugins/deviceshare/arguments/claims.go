// SPDX-License-Identifier: Apache-2.0

package arguments

import (
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
)

// AllocateClaims is the argument of Volcano's plugin predicates that has it allocate the resource
// claims of pods. Without it, Volcano 1.14 binds such pods as if they had none, and no node starts
// them.
const AllocateClaims = "predicate.DynamicResourceAllocationEnable"

// AllocatesClaims reports whether one of the plugins allocates resource claims.
func AllocatesClaims(tiers []conf.Tier) (yes bool) {
	for _, t := range tiers {
		for i := range t.Plugins {
			o := &t.Plugins[i]
			if o.Name == "predicates" && o.EnabledPredicate != nil && *o.EnabledPredicate {
				framework.Arguments(o.Arguments).GetBool(&yes, AllocateClaims)
			}
		}
	}
	return yes
}
