// SPDX-License-Identifier: Apache-2.0

package holds

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// cluster is what a test says of pods and nodes.
type cluster struct {
	waiting  map[Job][]Member
	binding  map[Pod]bool
	bound    map[Pod]bool
	occupied map[Pod]bool
	leaving  map[Pod]int64
	unusable map[string]bool
}

func newCluster() *cluster {
	return &cluster{waiting: map[Job][]Member{}, binding: map[Pod]bool{}, bound: map[Pod]bool{}, occupied: map[Pod]bool{}, leaving: map[Pod]int64{}, unusable: map[string]bool{}}
}

func (c *cluster) Waits(j Job, p Pod) (string, bool) {
	for _, m := range c.waiting[j] {
		if m.Pod == p {
			return m.Shape, true
		}
	}
	return "", false
}
func (c *cluster) IsBinding(_ Job, p Pod) bool { return c.binding[p] }
func (c *cluster) IsBound(_ Job, p Pod) bool   { return c.bound[p] }
func (c *cluster) Members(j Job) ([]Member, bool) {
	m, exists := c.waiting[j]
	return m, exists
}
func (c *cluster) Occupies(v *Victim) bool { return c.occupied[v.Pod] }
func (c *cluster) LeavesSince(v *Victim) (int64, bool) {
	since, leaves := c.leaving[v.Pod]
	return since, leaves
}
func (c *cluster) IsUsable(node string) bool { return !c.unusable[node] }

// oneHold is a hold of pod p on n1, for which a and b have to leave within 90 s.
func oneHold(t *testing.T) (*Book, *cluster) {
	t.Helper()
	b, c := NewBook(), newCluster()
	b.Keep(Hold{
		Job: "j", Priority: 100, Slots: []Slot{{Pod: "p", Name: "ns/p", Node: "n1", Shape: "s"}},
		Victims: []Victim{{Pod: "a", Node: "n1", Name: "ns/a", Deadline: 90}, {Pod: "b", Node: "n1", Name: "ns/b", Deadline: 90}},
	})
	c.waiting["j"] = []Member{{Pod: "p", Name: "ns/p", Shape: "s"}}
	c.occupied["a"], c.occupied["b"] = true, true
	return b, c
}

func TestAHoldLastsUntilItsPodsAreBoundOrItCannotBeUsed(t *testing.T) {
	leave := func(c *cluster, pods ...Pod) {
		for _, p := range pods {
			delete(c.occupied, p)
		}
	}
	for name, c := range map[string]struct {
		change  func(*cluster)
		at      []int64 // Refresh is called at these times
		outcome Outcome
		why     string
		stays   bool
		victims int
	}{
		"while victims end":                 {change: func(*cluster) {}, at: []int64{1, 30}, stays: true, victims: 2},
		"when one victim has left":          {change: func(c *cluster) { leave(c, "a") }, at: []int64{1}, stays: true, victims: 1},
		"when all have, for a while":        {change: func(c *cluster) { leave(c, "a", "b") }, at: []int64{1, 61}, stays: true},
		"not for ever":                      {change: func(c *cluster) { leave(c, "a", "b") }, at: []int64{1, 62}, outcome: Failed, why: "cannot be used"},
		"a victim does not end":             {change: func(c *cluster) { leave(c, "a") }, at: []int64{90, 91}, outcome: Failed, why: "pod ns/b on node n1 does not end"},
		"the node is gone":                  {change: func(c *cluster) { c.unusable["n1"] = true }, at: []int64{1}, outcome: Failed, why: "node n1"},
		"the pod is bound":                  {change: func(c *cluster) { c.waiting["j"] = nil; c.bound["p"] = true }, at: []int64{1}, outcome: Placed},
		"the pod is being bound":            {change: func(c *cluster) { c.waiting["j"] = nil; c.binding["p"] = true }, at: []int64{1, 30}, stays: true, victims: 2},
		"the pod asks for something else":   {change: func(c *cluster) { c.waiting["j"][0].Shape = "t" }, at: []int64{1}, outcome: Abandoned},
		"the pod is gone, for a while":      {change: func(c *cluster) { c.waiting["j"] = nil }, at: []int64{1, 61}, stays: true, victims: 2},
		"no other pod has come":             {change: func(c *cluster) { c.waiting["j"] = nil }, at: []int64{1, 62}, outcome: Abandoned},
		"a pod of another shape has come":   {change: func(c *cluster) { c.waiting["j"] = []Member{{Pod: "q", Shape: "t"}} }, at: []int64{1, 62}, outcome: Abandoned},
		"another pod of the shape has come": {change: func(c *cluster) { c.waiting["j"] = []Member{{Pod: "q", Shape: "s"}} }, at: []int64{1, 62}, stays: true, victims: 2},
		"the job is gone":                   {change: func(c *cluster) { delete(c.waiting, "j") }, at: []int64{1}, outcome: Abandoned},
	} {
		t.Run(name, func(t *testing.T) {
			b, world := oneHold(t)
			c.change(world)
			var ended []End
			for i, at := range c.at {
				if ended = b.Refresh(world, at); len(ended) > 0 && i < len(c.at)-1 {
					t.Fatalf("it ended at %d already: %+v", at, ended)
				}
			}
			if c.stays {
				if h := b.Of("j"); len(ended) > 0 || h == nil || len(h.Victims) != c.victims {
					t.Fatalf("ended %+v, kept %+v; want it to stay with %d victims", ended, h, c.victims)
				}
				return
			}
			if len(ended) != 1 || ended[0].Outcome != c.outcome || !strings.Contains(ended[0].Why, c.why) || b.Len() != 0 {
				t.Fatalf("ended %+v, %d left; want %v, %q", ended, b.Len(), c.outcome, c.why)
			}
			if len(ended[0].Hold.Slots) != 1 || len(b.Wanted()) != 0 {
				t.Errorf("ended %+v, still wanted %v", ended, b.Wanted())
			}
		})
	}
}

func TestAMoreImportantJobTakesASlotWithItsVictims(t *testing.T) {
	b, c := oneHold(t)
	b.Keep(Hold{Job: "j", Priority: 100, Slots: []Slot{{Pod: "p2", Node: "n2"}}, Victims: []Victim{{Pod: "c", Node: "n2"}}})
	b.Keep(Hold{Job: "j", Priority: 100, Victims: []Victim{{Pod: "d", Node: "n2", For: "n1", Deadline: 90}}})
	b.TakeOver("j", Hold{Job: "top", Priority: 200, Slots: []Slot{{Pod: "q", Node: "n1", Shape: "s"}}}, 5)
	if got := slices.Sorted(maps.Keys(b.Wanted())); !slices.Equal(got, []Pod{"a", "b", "d"}) {
		t.Errorf("have to leave %v: want those for n1, where the taker is, and nobody else", got)
	}
	if b.Of("j") != nil || b.Of("top") == nil {
		t.Error("the job that lost its places has a hold, or the taker has none")
	}
	c.waiting["top"] = []Member{{Pod: "q", Shape: "s"}}
	c.occupied["d"] = true
	if ended := b.Refresh(c, 6); len(ended) != 0 {
		t.Errorf("ended %+v", ended)
	}
}

func TestAJobThatFailsWaitsLongerEachTime(t *testing.T) {
	b, c := NewBook(), newCluster()
	c.waiting["j"] = nil
	now := int64(1000)
	for i, wait := range []int64{0, 60, 120, 240, 480, 960, 1800, 1800, 1800} {
		b.Keep(Hold{Job: "j"})
		b.Fail("j", now)
		next, may := b.MayEvict("j", now)
		if next != now+wait || may != (wait == 0) {
			t.Errorf("after failure %d: next at %+d, may now: %v; want %+d", i+1, next-now, may, wait)
		}
		now = next
		if _, may := b.MayEvict("j", now); !may {
			t.Errorf("after failure %d it may not when the wait is over", i+1)
		}
	}
	if _, may := b.MayEvict("other", 0); !may {
		t.Error("a job that never failed may not evict")
	}
	b.Keep(Hold{Job: "j", Slots: []Slot{{Pod: "p", Node: "n"}}})
	c.bound["p"] = true
	b.Refresh(c, now)
	b.Keep(Hold{Job: "j"})
	b.Fail("j", now)
	if _, may := b.MayEvict("j", now); !may {
		t.Error("a placement has not made up for earlier failures")
	}
	delete(c.waiting, "j")
	b.Refresh(c, now)
	if b.HasFailures() {
		t.Error("failures of a job that is gone are remembered")
	}
}

func TestHoldsAreServedByPriorityAndThenByAge(t *testing.T) {
	b := NewBook()
	for i, h := range []Hold{{Priority: 1, Since: 9}, {Priority: 5, Since: 8}, {Priority: 5, Since: 2}, {Priority: 9, Since: 10}} {
		h.Job = Job(fmt.Sprint(i))
		b.Keep(h)
	}
	var got []Job
	for _, h := range b.InOrder() {
		got = append(got, h.Job)
	}
	if want := []Job{"3", "2", "1", "0"}; !slices.Equal(got, want) {
		t.Errorf("served in the order %v, want %v", got, want)
	}
}

func TestAReasonIsReadAsItWasWritten(t *testing.T) {
	for _, r := range []Reason{
		{For: "ml/train-0", Node: "n1", Priority: 100, Own: -10},
		{For: "ml/train-0", Node: "n1.example.com", Reclaimed: true},
		{For: "ml/train-0", Node: "n1.example.com", Kept: "n4"},
		{For: "a/b", Node: "n", Priority: 2147483647, Own: -2147483648},
	} {
		text := r.String()
		if strings.Contains(text, "%") {
			t.Errorf("%q has a percent sign", text)
		}
		if got, ok := ParseReason(text); !ok || got != r {
			t.Errorf("%q was read as %+v, %v", text, got, ok)
		}
	}
	text := Reason{For: "a/b", Node: "n", Priority: 5, Own: 1}.String()
	for i := range text {
		if r, ok := ParseReason(text[:i]); ok {
			t.Errorf("part %q was read as %+v", text[:i], r)
		}
	}
	if r, ok := ParseReason("volcano: preempting to accommodate a higher priority pod"); ok {
		t.Errorf("Volcano's sentence was read as %+v", r)
	}
}

func FuzzParseReason(f *testing.F) {
	f.Add(Reason{For: "a/b", Node: "n", Priority: 5, Own: 1}.String())
	f.Add(Reason{For: "a/b", Node: "n", Reclaimed: true}.String())
	f.Fuzz(func(t *testing.T, text string) {
		if r, ok := ParseReason(text); ok {
			if again, ok := ParseReason(r.String()); !ok || again != r {
				t.Errorf("%q was read as %+v, and that as %+v", text, r, again)
			}
		}
	})
}

// Random histories: who is wanted is a victim of a hold whose pods wait, and every hold ends once
// its job is gone.
func TestNobodyHasToLeaveForAJobThatIsGone(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		b, c := NewBook(), newCluster()
		for now := range int64(60) {
			j := Job(fmt.Sprint("j", r.IntN(4)))
			switch r.IntN(6) {
			case 0, 1:
				p, v := Pod(fmt.Sprint("p", now)), Pod(fmt.Sprint("v", r.IntN(9)))
				c.waiting[j] = append(c.waiting[j], Member{Pod: p, Shape: "s"})
				c.occupied[v] = true
				b.Keep(Hold{Job: j, Priority: int32(r.IntN(3)), Since: now, Slots: []Slot{{Pod: p, Node: fmt.Sprint("n", r.IntN(3)), Shape: "s"}},
					Victims: []Victim{{Pod: v, Node: fmt.Sprint("n", r.IntN(3)), Deadline: now + r.Int64N(30)}}})
			case 2:
				delete(c.waiting, j)
			case 3:
				delete(c.occupied, Pod(fmt.Sprint("v", r.IntN(9))))
			case 4:
				if m := c.waiting[j]; len(m) > 0 {
					c.bound[m[0].Pod], c.waiting[j] = true, m[1:]
				}
			case 5:
				c.unusable[fmt.Sprint("n", r.IntN(3))] = r.IntN(2) == 0
			}
			b.Refresh(c, now)
			for _, h := range b.InOrder() {
				if _, exists := c.waiting[h.Job]; !exists {
					t.Fatalf("seed %d, second %d: hold of job %s, which is gone", seed, now, h.Job)
				}
				for _, v := range h.Victims {
					if !c.occupied[v.Pod] || now > v.Deadline {
						t.Fatalf("seed %d, second %d: victim %+v is gone or overdue", seed, now, v)
					}
				}
			}
		}
	}
}
