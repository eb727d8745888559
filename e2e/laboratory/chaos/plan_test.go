// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/workload"
)

func events(seed uint64, n int) []Event {
	p := NewPlan(seed)
	var out []Event
	for range n {
		out = append(out, p.Next())
	}
	return out
}

func TestASeedRepeatsAPlan(t *testing.T) {
	if diff := cmp.Diff(events(7, 1000), events(7, 1000)); diff != "" {
		t.Error(diff)
	}
	if cmp.Equal(events(7, 100), events(8, 100)) {
		t.Error("two seeds give one plan")
	}
}

func TestAPlanDoesEverythingAndMostlyKills(t *testing.T) {
	counts := map[Action]int{}
	killed := map[string]int{}
	for _, e := range events(1, 10000) {
		counts[e.Action]++
		if e.Action == Kill {
			killed[e.Target]++
		}
		if lasts := e.Action != Kill && e.Action != Configure && e.Action != Tune; lasts != (e.For > 0) {
			t.Errorf("%v lasts %s", e, e.For)
		}
		if e.Pause < 0 || e.Pause > longestPause {
			t.Errorf("%v comes after %s", e, e.Pause)
		}
	}
	for _, a := range []Action{Kill, Freeze, Configure, Tune, Break, Cut, Fill} {
		if counts[a] < 50 {
			t.Errorf("%s happened %d times of 10000", a, counts[a])
		}
	}
	if counts[Kill] < 8000 || len(killed) != len(victims()) {
		t.Errorf("%d kills, of %v", counts[Kill], killed)
	}
}

// Edits are texts of the schema, but for the mode that does not exist.
func TestEditsAreWellFormed(t *testing.T) {
	texts := map[string]bool{Quiet(): true}
	for _, e := range events(1, 10000) {
		if e.Action == Configure {
			texts[e.Target] = true
		}
	}
	if len(texts) != 6 {
		t.Errorf("%d different edits", len(texts))
	}
	for text := range texts {
		var c struct {
			Nodeconfig []struct {
				Devices []struct {
					Index int
					Mode  string
				}
			}
		}
		if err := json.Unmarshal([]byte(text), &c); err != nil || len(c.Nodeconfig) != 1 || len(c.Nodeconfig[0].Devices) < 3 {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestTuningsAreDrawn(t *testing.T) {
	texts := map[string]bool{}
	for _, e := range events(1, 10000) {
		if e.Action == Tune {
			texts[e.Target] = true
		}
	}
	if len(texts) != len(tunings()) || !texts[Untuned()] {
		t.Errorf("drawn %v", texts)
	}
}

func TestOrdersHaveTheirNamesAndNothingFromElsewhere(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	kinds := map[string]bool{}
	for n := range 2000 {
		name := fmt.Sprintf("p0-%d", n)
		o := order(name, r)
		kinds[o.Kind] = true
		if (o.Controlled == nil) == (len(o.Pods) == 0) || o.Gang != (len(o.Pods) > 1) {
			t.Fatalf("%s: %d pods, controlled %v, a gang %v", o.Kind, len(o.Pods), o.Controlled != nil, o.Gang)
		}
		for _, p := range o.Pods {
			if isImportant := p.Spec.PriorityClassName == importantClass; isImportant != strings.HasPrefix(o.Kind, "important") {
				t.Errorf("%s: pod %s has priority class %q", o.Kind, p.Name, p.Spec.PriorityClassName)
			}
			if !strings.HasPrefix(p.Name, name) || p.Spec.SchedulerName != "volcano" {
				t.Errorf("%s: pod %s for scheduler %s", o.Kind, p.Name, p.Spec.SchedulerName)
			}
		}
	}
	if len(kinds) != 14 {
		t.Errorf("only %v", kinds)
	}
}

// The crowd is the least important, and wants more than half of what there is.
func TestTheCrowdIsUnimportantAndLarge(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		sum := int64(0)
		for i := range crowds {
			d := crowd(i, r)
			template := d.Spec.Template
			if template.Spec.PriorityClassName != crowdClass || sparedBy(&corev1.Pod{ObjectMeta: template.ObjectMeta}) != "" {
				t.Errorf("%s is important or spared", d.Name())
			}
			ask := template.Spec.Containers[0].Resources.Limits[workload.Memory]
			sum += int64(*d.Spec.Replicas) * ask.Value()
		}
		if sum < 8*81920/2 {
			t.Errorf("seed %d: the crowd wants %d MiB of eight devices", seed, sum)
		}
	}
}
