// SPDX-License-Identifier: Apache-2.0

package sharing_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
)

// person is a pod as people describe it: what it is, and what it says of others.
type person struct {
	name, namespace, group string
	labels                 map[string]string
	accepts                string
	spread                 bool
	avoids                 []map[string]string // "*" is any value
}

// mayBeBeside is the rule as the documentation has it, pair by pair.
func (p person) mayBeBeside(o person) bool { return p.accept(o) && o.accept(p) }

func (p person) accept(o person) bool {
	if p.spread && o.spread && p.group == o.group && p.group != "" && p.namespace == o.namespace {
		return false
	}
	for _, all := range p.avoids {
		has := 0
		for key, value := range all {
			if v, there := o.labels[key]; there && (value == "*" || value == v) {
				has++
			}
		}
		if has == len(all) {
			return false
		}
	}
	return p.accepts == "any" ||
		p.accepts == "namespace" && p.namespace == o.namespace ||
		p.accepts == "group" && p.namespace == o.namespace && p.group == o.group && p.group != ""
}

func (p person) neighbours() *sharing.Neighbours {
	n := &sharing.Neighbours{Group: p.group, Labels: p.labels, Spread: p.spread}
	for i, name := range sharing.Acceptances() {
		if name == p.accepts {
			n.Accepts = sharing.Acceptance(i)
		}
	}
	for _, all := range p.avoids {
		var s sharing.LabelSelector
		for key, value := range all {
			r := sharing.LabelRequirement{Key: key}
			if value != "*" {
				r.Values = []string{"other", value}
			}
			s = append(s, r)
		}
		n.Avoids = append(n.Avoids, sharing.Avoidance{Pods: s, Rule: fmt.Sprint(all)})
	}
	return n
}

func anyone(r *rand.Rand, name string) person {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	p := person{name: name, namespace: pick("a", "b"), group: pick("", "g", "h"), labels: someLabels(r), accepts: "any"}
	switch r.IntN(6) {
	case 0:
		p.accepts = pick(sharing.Acceptances()...)
	case 1:
		p.spread = true
	case 2, 3:
		for range 1 + r.IntN(2) {
			if l := someLabels(r); len(l) > 0 {
				p.avoids = append(p.avoids, l)
			}
		}
	}
	return p
}

func someLabels(r *rand.Rand) map[string]string {
	l := map[string]string{}
	for range r.IntN(3) {
		l[[]string{"app", "tier"}[r.IntN(2)]] = []string{"x", "y", "*"}[r.IntN(3)]
	}
	return l
}

// Pods come, go, and change their labels. Whoever comes is placed beside nobody who refuses it or
// whom it refuses, by what both are at that time; and it is refused for that reason only where
// somebody does.
func TestPodsShareADeviceOnlyIfEachAcceptsTheOther(t *testing.T) {
	spread, _ := policy.Named("spread")
	placed, refused, edits := 0, 0, 0
	for seed := range uint64(10_000) {
		r := rand.New(rand.NewPCG(seed, 31))
		inv := sharingtest.Node("n1", sharingtest.Device(0, "A100-80", sharing.HAMiCore), sharingtest.Device(1, "A100-80", sharing.TimeSlicing),
			sharingtest.Free(sharingtest.Device(2, "A100-80", sharing.MIG)))
		l := sharing.NewLedger(inv, factory.New())
		here := map[sharing.Owner]person{}
		for range 12 {
			owner := sharing.Owner(fmt.Sprint("p", r.IntN(7)))
			p, isHere := here[owner]
			switch {
			case isHere && r.IntN(2) == 0:
				l.Release(owner)
				delete(here, owner)
			case isHere:
				old, _ := l.Placement(owner)
				p.labels, edits = someLabels(r), edits+1
				old.Neighbours = p.neighbours()
				l.Record(owner, old)
				here[owner] = p
			default:
				p = anyone(r, string(owner))
				pod := sharingtest.Pod(string(owner), sharingtest.Ask("main", int64(1000+r.IntN(4000)), 0))
				pod.Owner, pod.Namespace, pod.Neighbours = owner, p.namespace, p.neighbours()
				if r.IntN(4) == 0 {
					pod.Requests[0].Count = 2
				}
				got, refusals := place.Place(l.Views(), pod, factory.New(), spread)
				for i := range l.Views() {
					v := &l.Views()[i]
					wrong := with(p, v, here)
					if got.Uses(v.Device.ID) && wrong != "" {
						t.Fatalf("seed %d: %+v was placed beside %s", seed, p, wrong)
					}
					if clash, clashes := v.FindClash(pod); clashes != (wrong != "") || clashes && here[clash.Owner].mayBeBeside(p) {
						t.Fatalf("seed %d: %+v on device %s: clash %+v, want one with %q", seed, p, v.Device.ID, clash, wrong)
					}
				}
				if refusals.Refused() {
					refused++
					continue
				}
				placed++
				if err := l.Reserve(owner, got); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				here[owner] = p
			}
		}
	}
	if placed < 20_000 || refused < 5_000 || edits < 5_000 {
		t.Errorf("%d placed, %d refused, %d edits: they say little", placed, refused, edits)
	}
}

// with returns who is on a device and must not be beside a pod.
func with(p person, v *sharing.View, here map[sharing.Owner]person) string {
	for _, h := range v.Held() {
		if o := here[h.Owner]; !p.mayBeBeside(o) {
			return o.name
		}
	}
	return ""
}

func TestAReservationBesideAPodThatRefusesItIsAnError(t *testing.T) {
	inv := sharingtest.Node("n1", sharingtest.Device(0, "A100-80", sharing.HAMiCore))
	l := sharing.NewLedger(inv, factory.New())
	share := func(n *sharing.Neighbours) sharing.Placement {
		s := sharing.Share{Device: inv.Devices[0].ID, Mode: sharing.HAMiCore, Memory: sharing.GiB}
		return sharing.Placement{Node: "n1", Neighbours: n, Containers: []sharing.ContainerShares{{Container: "c", Shares: []sharing.Share{s}}}}
	}
	if err := l.Reserve("alone", share(&sharing.Neighbours{Accepts: sharing.AcceptsNone})); err != nil {
		t.Fatal(err)
	}
	if err := l.Reserve("other", share(nil)); err == nil || !strings.Contains(err.Error(), "must not be beside alone") {
		t.Errorf("got %v", err)
	}
	if v := &l.Views()[0]; v.IsOpen() {
		t.Error("a device of a pod that accepts none is open")
	}
}

// Whoever asks whether answers depend on the names of pods is told no where they do not.
func TestAnswersDependOnNamesWhereAPodSelectsByThem(t *testing.T) {
	llm := sharing.Avoidance{Pods: sharing.LabelSelector{{Key: "app", Values: []string{"llm"}}}, Rule: "r"}
	mutual := llm
	mutual.Mutual = true
	for name, c := range map[string]struct {
		n         *sharing.Neighbours
		selective bool
		byName    bool
	}{
		"nothing is known":                   {nil, false, false},
		"it accepts all":                     {&sharing.Neighbours{Labels: map[string]string{"app": "llm"}}, false, false},
		"it accepts none":                    {&sharing.Neighbours{Accepts: sharing.AcceptsNone}, true, false},
		"it accepts those of its namespace":  {&sharing.Neighbours{Accepts: sharing.AcceptsNamespace}, true, false},
		"it accepts those of its group":      {&sharing.Neighbours{Accepts: sharing.AcceptsGroup}, true, true},
		"it is spread, as those it refuses":  {&sharing.Neighbours{Spread: true, Group: "g"}, true, false},
		"it avoids others":                   {&sharing.Neighbours{Avoids: []sharing.Avoidance{llm}}, true, true},
		"it avoids those that avoid it, too": {&sharing.Neighbours{Avoids: []sharing.Avoidance{mutual}}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			inv := sharingtest.Node("n1", sharingtest.Device(0, "A100-80", sharing.HAMiCore))
			l := sharing.NewLedger(inv, factory.New())
			l.Record("p", sharing.Placement{Node: "n1", Neighbours: c.n, Containers: []sharing.ContainerShares{
				{Container: "c", Shares: []sharing.Share{{Device: inv.Devices[0].ID, Mode: sharing.HAMiCore, Memory: sharing.GiB}}}}})
			if c.n.IsSelective() != c.selective || l.SelectsByName() != c.byName || l.Fork().SelectsByName() != c.byName {
				t.Errorf("selective %v, by name %v", c.n.IsSelective(), l.SelectsByName())
			}
			if l.Release("p"); l.SelectsByName() {
				t.Error("it still does when the pod has gone")
			}
		})
	}
}

func TestSelectorsMatchLabels(t *testing.T) {
	labels := map[string]string{"app": "llm", "tier": ""}
	for text, c := range map[string]struct {
		s    sharing.LabelSelector
		want bool
	}{
		"no label":            {nil, false},
		"a value":             {sharing.LabelSelector{{Key: "app", Values: []string{"llm"}}}, true},
		"one of several":      {sharing.LabelSelector{{Key: "app", Values: []string{"web", "llm"}}}, true},
		"another value":       {sharing.LabelSelector{{Key: "app", Values: []string{"web"}}}, false},
		"any value":           {sharing.LabelSelector{{Key: "tier"}}, true},
		"the empty value":     {sharing.LabelSelector{{Key: "tier", Values: []string{""}}}, true},
		"a label that is not": {sharing.LabelSelector{{Key: "team"}}, false},
		"not all of them":     {sharing.LabelSelector{{Key: "app"}, {Key: "team"}}, false},
	} {
		t.Run(text, func(t *testing.T) {
			if got := c.s.Matches(labels); got != c.want {
				t.Errorf("%v", got)
			}
		})
	}
}
