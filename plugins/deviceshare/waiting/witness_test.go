// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/cache"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
)

// A voter says no by a coin; the witness must name the first that did, and no other question
// may be answered otherwise because it stands by.
func TestAWitnessNamesTheFirstPluginThatSaidNo(t *testing.T) {
	names := []string{"gang", "overcommit", "proportion", "capacity"}
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		ssn := emptySession(t)
		no := map[string]map[string]bool{}
		yes := true
		for range 1 + r.IntN(2) {
			var tier conf.Tier
			for _, j := range r.Perm(len(names))[:2] {
				name := names[j]
				if slices.ContainsFunc(ssn.Tiers, func(t conf.Tier) bool {
					return slices.ContainsFunc(t.Plugins, func(o conf.PluginOption) bool { return o.Name == name })
				}) {
					continue
				}
				tier.Plugins = append(tier.Plugins, conf.PluginOption{Name: name, EnabledJobEnqueued: &yes, EnabledAllocatable: &yes, EnabledOverused: &yes})
				no[name] = map[string]bool{}
				for n := range 10 {
					no[name][fmt.Sprint("s", n)] = r.IntN(3) == 0
				}
				ssn.AddAllocatableFn(name, func(_ *api.QueueInfo, t *api.TaskInfo) bool { return !no[name][string(t.UID)] })
				ssn.AddOverusedFn(name, func(q any) bool { return no[name][string(q.(*api.QueueInfo).UID)] })
			}
			ssn.Tiers = append(ssn.Tiers, tier)
		}
		before := fmt.Sprint(ssn.Tiers)
		configured := ssn.Tiers
		w := &Witness{Plugin: "deviceshare"}
		w.StandBy(ssn)
		if fmt.Sprint(configured) != before {
			t.Fatal("the scheduler's configuration was changed")
		}
		for n := range 10 {
			subject := fmt.Sprint("s", n)
			want := ""
			for _, tier := range configured {
				for _, o := range tier.Plugins {
					if want == "" && no[o.Name][subject] {
						want = o.Name
					}
				}
			}
			if got := ssn.Allocatable(nil, &api.TaskInfo{UID: api.TaskID(subject)}); got != (want == "") {
				t.Fatalf("seed %d: allocatable is %v, and %q says no", seed, got, want)
			}
			if got := ssn.Overused(&api.QueueInfo{UID: api.QueueID(subject)}); got != (want != "") {
				t.Fatalf("seed %d: overused is %v, and %q says so", seed, got, want)
			}
			for _, q := range []question{mayAllocate, isOverused} {
				// Of one that is not known to have a say nobody is named.
				named := want
				if !slices.Contains(w.votingPlugins(q), want) {
					named = ""
				}
				if got := w.saidNo(q, subject); got != named {
					t.Fatalf("seed %d, question %d about %s: the witness names %q, and %q said no first in %v", seed, q, subject, got, want, configured)
				}
			}
		}
	}
}

func TestAWitnessForgetsANoThatBecameAYes(t *testing.T) {
	w := &Witness{Plugin: "deviceshare"}
	w.noteAsked(isOverused, "q", "proportion")
	if got := w.saidNo(isOverused, "q"); got != "proportion" {
		t.Fatalf("it names %q", got)
	}
	w.noteAsked(isOverused, "q", "proportion")
	w.noteAsked(isOverused, "q", "")
	if got := w.saidNo(isOverused, "q"); got != "" {
		t.Errorf("it still names %q", got)
	}
}

func TestAPluginThatIsNotAskedHasNoNeighbours(t *testing.T) {
	no := false
	ssn := emptySession(t)
	ssn.Tiers = []conf.Tier{{Plugins: []conf.PluginOption{{Name: "overcommit", EnabledJobEnqueued: &no}, {Name: "binpack"}}}}
	want := ssn.Tiers
	(&Witness{Plugin: "deviceshare"}).StandBy(ssn)
	if !reflect.DeepEqual(ssn.Tiers, want) {
		t.Errorf("the tiers became %v", ssn.Tiers)
	}
}

// emptySession is a session without any plugin.
func emptySession(t *testing.T) *framework.Session {
	t.Helper()
	ssn := framework.OpenSession(cache.NewDefaultMockSchedulerCache("volcano"), nil, nil)
	t.Cleanup(func() { framework.CloseSession(ssn) })
	return ssn
}
