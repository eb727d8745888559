// SPDX-License-Identifier: Apache-2.0

package holds

import (
	"maps"
	"slices"
	"testing"
)

// oneMove is a hold of job j on n1, for which pod a of job m leaves n1 and goes to n2. Pod b of job
// m stays on n3.
func oneMove(t *testing.T) (*Book, *cluster) {
	t.Helper()
	b, c := NewBook(), newCluster()
	a, stays := Victim{Pod: "a", Node: "n1", Name: "ns/a", Deadline: 90, Action: Consolidate}, Victim{Pod: "b", Node: "n3", Name: "ns/b"}
	b.Keep(Hold{Job: "j", Priority: 1, Slots: []Slot{{Pod: "p", Name: "ns/p", Node: "n1", Shape: "s"}}, Victims: []Victim{a}})
	b.Keep(Hold{Job: "m", Priority: 1, Slots: []Slot{
		{Pod: "a", Name: "ns/a", Node: "n2", Shape: "t", From: &a},
		{Pod: "b", Name: "ns/b", Node: "n3", Shape: "t", From: &stays, Stays: true},
	}})
	c.waiting["j"], c.waiting["m"] = []Member{{Pod: "p", Shape: "s"}}, nil
	c.occupied["a"], c.occupied["b"] = true, true
	return b, c
}

// moveStep is a second of a history of oneMove.
type moveStep struct {
	at     int64
	change func(b *Book, c *cluster)
	kept   []string // pod and node of each slot
	wants  bool     // the pod still has to leave
}

func moveHistories() map[string][]moveStep {
	gone := func(c *cluster, pods ...Pod) {
		for _, p := range pods {
			delete(c.occupied, p)
			delete(c.leaving, p)
		}
	}
	return map[string][]moveStep{
		"until it was bound": {
			{at: 1, kept: []string{"a n2", "b n3"}, wants: true},
			{at: 2, change: func(_ *Book, c *cluster) { c.leaving["a"] = 1 }, kept: []string{"a n2", "b n3"}, wants: true},
			{at: 40, change: func(_ *Book, c *cluster) { gone(c, "a") }, kept: []string{"a n2", "b n3"}},
			{at: 159, kept: []string{"a n2", "b n3"}},
			{at: 160, change: func(_ *Book, c *cluster) { c.waiting["m"] = []Member{{Pod: "a2", Name: "ns/a2", Shape: "t", Made: 1}} }, kept: []string{"a2 n2", "b n3"}},
			{at: 161, change: func(_ *Book, c *cluster) { c.waiting["m"], c.binding["a2"] = nil, true }, kept: []string{"a2 n2", "b n3"}},
			{at: 162, change: func(_ *Book, c *cluster) { c.bound["a2"], c.binding["a2"] = true, false }},
		},
		"which may be there long before the pod is gone": {
			{at: 1, change: func(_ *Book, c *cluster) {
				c.leaving["a"] = 1
				c.waiting["m"] = []Member{{Pod: "a2", Name: "ns/a2", Shape: "t", Made: 1}}
			}, kept: []string{"a2 n2", "b n3"}, wants: true},
			{at: 85, kept: []string{"a2 n2", "b n3"}, wants: true},
			{at: 86, change: func(_ *Book, c *cluster) { gone(c, "a") }, kept: []string{"a2 n2", "b n3"}},
			{at: 145, kept: []string{"a2 n2", "b n3"}},
			{at: 146},
		},
		"not for ever": {
			{at: 40, change: func(_ *Book, c *cluster) { gone(c, "a") }, kept: []string{"a n2", "b n3"}},
			{at: 161},
		},
		"not if it cannot be bound": {
			{at: 40, change: func(_ *Book, c *cluster) {
				gone(c, "a")
				c.waiting["m"] = []Member{{Pod: "a2", Name: "ns/a2", Shape: "t", Made: 1}}
			}, kept: []string{"a2 n2", "b n3"}},
			{at: 100, kept: []string{"a2 n2", "b n3"}},
			{at: 101},
		},
		"not if it asks for something else": {
			{at: 40, change: func(_ *Book, c *cluster) {
				gone(c, "a")
				c.waiting["m"] = []Member{{Pod: "a2", Name: "ns/a2", Shape: "other"}}
			}, kept: []string{"a n2", "b n3"}},
		},
		"not for one that waited before": {
			{at: 1, change: func(_ *Book, c *cluster) {
				c.leaving["a"] = 1
				c.waiting["m"] = []Member{{Pod: "old", Name: "ns/old", Shape: "t"}}
			}, kept: []string{"a n2", "b n3"}, wants: true},
		},
		"also for one that is made again": {
			{at: 40, change: func(_ *Book, c *cluster) {
				gone(c, "a")
				c.waiting["m"] = []Member{{Pod: "a2", Name: "ns/a2", Shape: "t", Made: 1}}
			}, kept: []string{"a2 n2", "b n3"}},
			{at: 50, change: func(_ *Book, c *cluster) { c.waiting["m"] = nil }, kept: []string{"a n2", "b n3"}},
			{at: 51, change: func(_ *Book, c *cluster) {
				c.waiting["m"] = []Member{{Pod: "a3", Name: "ns/a3", Shape: "t", Made: 51}}
			}, kept: []string{"a3 n2", "b n3"}},
		},
		"not for one of a gang that leaves for others": {
			{at: 1, change: func(b *Book, c *cluster) {
				c.waiting["top"] = []Member{{Pod: "q", Shape: "s"}}
				b.Keep(Hold{Job: "top", Slots: []Slot{{Pod: "q", Node: "n3", Shape: "s"}}, Victims: []Victim{{Pod: "b", Node: "n3", Deadline: 90, Action: Preempt}}})
			}, kept: []string{"a n2"}, wants: true},
		},
	}
}

// lostHistories are about places that are not kept, or not for everybody.
func lostHistories() map[string][]moveStep {
	gone := func(c *cluster, pods ...Pod) {
		for _, p := range pods {
			delete(c.occupied, p)
			delete(c.leaving, p)
		}
	}
	return map[string][]moveStep{
		"not if nobody wants the room any more": {
			{at: 1, change: func(b *Book, _ *cluster) { b.Release("j") }},
		},
		"but if it was told to leave by then": {
			{at: 1, change: func(b *Book, c *cluster) { b.Release("j"); c.leaving["a"] = 1 }, kept: []string{"a n2", "b n3"}},
		},
		"not on a node that takes no pods": {
			{at: 1, change: func(_ *Book, c *cluster) { c.unusable["n2"] = true }},
		},
		"not for a job that is gone": {
			{at: 1, change: func(_ *Book, c *cluster) { delete(c.waiting, "m") }},
		},
		"beside one for a pod that waits": {
			{at: 1, change: func(b *Book, c *cluster) {
				c.waiting["m"] = []Member{{Pod: "w", Name: "ns/w", Shape: "u"}}
				b.Keep(Hold{Job: "m", Slots: []Slot{{Pod: "w", Name: "ns/w", Node: "n9", Shape: "u"}}})
			}, kept: []string{"a n2", "b n3", "w n9"}, wants: true},
			{at: 2, change: func(_ *Book, c *cluster) { c.waiting["m"], c.bound["w"] = nil, true }, kept: []string{"a n2", "b n3"}, wants: true},
		},
		"and for those of the gang that are made again": {
			{at: 1, change: func(_ *Book, c *cluster) { c.leaving["a"], c.leaving["b"] = 1, 1 }, kept: []string{"a n2", "b n3"}, wants: true},
			{at: 40, change: func(_ *Book, c *cluster) { gone(c, "a", "b") }, kept: []string{"a n2", "b n3"}},
			{at: 41, change: func(_ *Book, c *cluster) {
				c.waiting["m"] = []Member{{Pod: "a2", Name: "ns/a2", Shape: "t", Made: 1}, {Pod: "b2", Name: "ns/b2", Shape: "t", Made: 1}}
			}, kept: []string{"a2 n2", "b2 n3"}},
			{at: 42, change: func(_ *Book, c *cluster) { c.bound["a2"], c.waiting["m"] = true, c.waiting["m"][1:] }, kept: []string{"b2 n3"}},
		},
	}
}

func TestAPlaceWaitsForTheSuccessorOfAPodThatMoves(t *testing.T) {
	all := moveHistories()
	maps.Copy(all, lostHistories())
	for name, steps := range all {
		t.Run(name, func(t *testing.T) {
			b, c := oneMove(t)
			for _, s := range steps {
				if s.change != nil {
					s.change(b, c)
				}
				b.Refresh(c, s.at)
				var kept []string
				if h := b.Of("m"); h != nil {
					for _, slot := range h.Slots {
						kept = append(kept, string(slot.Pod)+" "+slot.Node)
						if slot.IsVacant() && !slot.AwaitsSuccessor() {
							t.Errorf("at %d: the place of %s counts as vacant", s.at, slot.Pod)
						}
					}
				}
				if slices.Sort(kept); !slices.Equal(kept, s.kept) || b.Wanted()["a"] != s.wants {
					t.Errorf("at %d: kept %q, a has to leave: %v; want %q, %v", s.at, kept, b.Wanted()["a"], s.kept, s.wants)
				}
				if _, may := b.MayEvict("m", s.at); may != (len(kept) == 0) {
					t.Errorf("at %d: pods may be evicted for a job that moves: %v", s.at, may)
				}
			}
		})
	}
}
