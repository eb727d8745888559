// SPDX-License-Identifier: Apache-2.0

package schedulerconf_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"volcano.sh/volcano/pkg/scheduler"
	_ "volcano.sh/volcano/pkg/scheduler/actions"
	_ "volcano.sh/volcano/pkg/scheduler/plugins"

	"deviceshare/plugins/deviceshare"
	"deviceshare/plugins/schedulerconf"
)

// known is what the scheduler has.
func known() schedulerconf.Known {
	deviceshare.RegisterActions()
	return schedulerconf.Registered()
}

const nowhere = "tiers: plugin deviceshare is in none of them: pods with devices would be bound without any"

// The files are configurations as the documentation of Volcano, HAMi and others shows them, and as
// people misspell them.
func TestWhatDocumentedConfigurationsLeadTo(t *testing.T) {
	type want struct {
		mistakes, notes []string
	}
	good := want{}
	wants := map[string]want{
		"volcano-default.conf":                {mistakes: []string{nowhere}},
		"volcano-gpu-sharing-predicates.conf": {mistakes: []string{nowhere}},
		"cce-default.conf": {mistakes: []string{nowhere}, notes: []string{`tiers[2].plugins[0]: unknown plugin "cce-gpu-topology-predicate" is left out`,
			`tiers[2].plugins[1]: unknown plugin "cce-gpu-topology-priority" is left out`, `tiers[2].plugins[2]: unknown plugin "xgpu" is left out`}},
		"ascend-npu.conf": {mistakes: []string{nowhere}, notes: []string{`tiers[0].plugins[3]: unknown plugin "volcano-npu_v7.3.0_linux-x86_64" is left out`}},
		"volcano-gang-preempt.conf": {mistakes: []string{
			"actions[2]: gangPreempt is of a later version of Volcano: write preempt, which does it for gangs, too",
			"actions[3]: gangReclaim is of a later version of Volcano: write reclaim, which does it for gangs, too"}},
		"volcano-misspelt.conf": {mistakes: []string{
			`actions[1]: unknown action "alocate": want some of enqueue, allocate, consolidate, reclaim, preempt, backfill, shuffle`}},
		"volcano-semicolons.conf": {mistakes: []string{
			`actions[0]: unknown action "enqueue; allocate; backfill": want some of enqueue, allocate, consolidate, reclaim, preempt, backfill, shuffle`}},
		"volcano-no-actions.conf":          {mistakes: []string{`actions: there are none: want a text such as "enqueue, allocate, backfill"`}},
		"volcano-tabs.conf":                {mistakes: []string{"line 4: found character that cannot start any token"}},
		"volcano-hdrf-and-proportion.conf": {mistakes: []string{"proportion and drf with hierarchy enabled conflicts"}},
		"volcano-predicate-off.conf":       {mistakes: []string{"tiers[1].plugins[1].enablePredicate: plugin deviceshare must be asked which nodes a pod fits"}},
		"volcano-twice.conf":               {mistakes: []string{"tiers: plugin deviceshare is there 2 times"}},
		"empty.conf":                       {mistakes: []string{"the text is empty"}},
		"volcano-trailing-comma.conf":      {notes: []string{"actions[3]: nothing stands between two commas, or behind the last one"}},
		"volcano-capitals.conf": {notes: []string{"actions[0]: Enqueue is read as enqueue", "actions[1]: Allocate is read as allocate",
			"actions[2]: BackFill is read as backfill"}},
		"volcano-a-newer-plugin.conf":        {notes: []string{`tiers[1].plugins[5]: unknown plugin "gang-timeout" is left out`}},
		"volcano-misspelt-key.conf":          {notes: []string{"without effect: line 15: field enablePreemptible not found"}},
		"volcano-vgpu.conf":                  good,
		"volcano-vgpu-quoted.conf":           good,
		"volcano-vgpu-geometries.conf":       good,
		"volcano-vgpu-binpack.conf":          good,
		"volcano-gpu-number.conf":            good, // what it wants is refused by the plugin, which goes on without
		"volcano-exclusive-rules.conf":       good,
		"volcano-ascend-mindcluster.conf":    good,
		"hami-ascend.conf":                   good,
		"volcano-preempt.conf":               good,
		"volcano-capacity.conf":              good,
		"volcano-hdrf.conf":                  good,
		"volcano-tdm.conf":                   good,
		"volcano-sla.conf":                   good,
		"volcano-numa-aware.conf":            good,
		"volcano-rescheduling.conf":          good,
		"volcano-usage.conf":                 good,
		"volcano-extender.conf":              good,
		"volcano-network-topology.conf":      good,
		"volcano-resource-strategy-fit.conf": good,
		"volcano-nodegroup.conf":             good,
		"volcano-enqueue-factor.conf":        good,
		"cce-json.conf":                      good,
	}
	files, err := filepath.Glob("testdata/*.conf")
	if err != nil || len(files) != len(wants) {
		t.Fatalf("%d files, %d expected: %v", len(files), len(wants), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := schedulerconf.Read(string(text), known())
			want := wants[filepath.Base(file)]
			if diff := cmp.Diff(want.mistakes, got.Mistakes) + cmp.Diff(want.notes, got.Notes); diff != "" {
				t.Error(diff)
			}
			requireUsable(t, got)
		})
	}
}

// requireUsable wants a text without mistakes to be one with which Volcano calls our plugin, and
// one with mistakes to be none.
func requireUsable(t *testing.T, r schedulerconf.Reading) {
	t.Helper()
	if (r.Text == "") != (len(r.Mistakes) > 0) {
		t.Errorf("the text is %q, with mistakes %q", r.Text, r.Mistakes)
	}
	if len(r.Mistakes) > 0 {
		return
	}
	actions, tiers, _, _, err := scheduler.UnmarshalSchedulerConf(r.Text)
	if err != nil || len(actions) == 0 {
		t.Fatalf("Volcano reads %d actions: %v", len(actions), err)
	}
	found := 0
	for _, tier := range tiers {
		for _, p := range tier.Plugins {
			if p.Name == deviceshare.PluginName && *p.EnabledPredicate {
				found++
			}
		}
	}
	if found != 1 {
		t.Errorf("plugin deviceshare is asked %d times", found)
	}
}

// What is put right changes the actions, and nothing else.
func TestATextThatIsPutRightSaysTheSame(t *testing.T) {
	for _, name := range []string{"volcano-capacity.conf", "volcano-usage.conf", "volcano-rescheduling.conf", "volcano-sla.conf", "volcano-exclusive-rules.conf", "cce-json.conf"} {
		text, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			t.Fatal(err)
		}
		_, tiers, configurations, metrics, err := scheduler.UnmarshalSchedulerConf(string(text))
		if err != nil {
			t.Fatal(err)
		}
		sloppy := schedulerconf.Read(strings.Replace(string(text), "allocate,", "Allocate,,", 1), known())
		if len(sloppy.Mistakes) > 0 || len(sloppy.Notes) != 2 {
			t.Fatalf("%s: mistakes %q, notes %q", name, sloppy.Mistakes, sloppy.Notes)
		}
		actions, gotTiers, gotConfigurations, gotMetrics, err := scheduler.UnmarshalSchedulerConf(sloppy.Text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tiers, gotTiers) + cmp.Diff(configurations, gotConfigurations) + cmp.Diff(metrics, gotMetrics); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		for _, a := range actions {
			if a.Name() != strings.ToLower(a.Name()) {
				t.Errorf("%s: action %s", name, a.Name())
			}
		}
	}
}

func TestTheShippedConfigurationHasNoMistakesAndNeedsNoNote(t *testing.T) {
	text, err := os.ReadFile("../deviceshare/offline/shipped.conf")
	if err != nil {
		t.Fatal(err)
	}
	got := schedulerconf.Read(string(text), known())
	if len(got.Mistakes)+len(got.Notes) > 0 || got.Text != string(text) {
		t.Errorf("mistakes %q, notes %q", got.Mistakes, got.Notes)
	}
}

// Whatever the text, it has mistakes or is one that Volcano can go by, with our plugin in it.
func FuzzRead(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.conf")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	k := known()
	f.Fuzz(func(t *testing.T, text string) { requireUsable(t, schedulerconf.Read(text, k)) })
}
