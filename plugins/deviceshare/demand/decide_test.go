// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const gib = 1 << 10 // in MiB

func unseen(p *corev1.Pod) { p.Status.Conditions[0].Reason = "Undetermined" }

func TestNodesAreAskedForWhereSumsHideThatNoneHasRoom(t *testing.T) {
	eight, one := typeOf(t, "eight", cards("a", 8)), typeOf(t, "one", cards("b", 1))
	both := []NodeType{eight, one}
	full := seen(t, "eight", cards("full", 8)) // with pods of 48 GiB on all devices
	full.Idle = AmountsOf(corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("96"), corev1.ResourceMemory: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("102"),
		"volcano.sh/vgpu-number": resource.MustParse("72"), "volcano.sh/vgpu-memory": resource.MustParse("262144"), "volcano.sh/vgpu-cores": resource.MustParse("800"),
	})
	broken := seen(t, "eight", cards("broken", 8))
	broken.Inventory.Devices[0].Healthy = false
	broken.Idle = AmountsOf(broken.Node.Status.Allocatable)
	joining := Seen{Node: nodeOf(t, "eight", cards("joining", 8)), IsJoining: true}
	for name, c := range map[string]struct {
		q            *Question
		asked, needs map[string]int
	}{
		"nobody waits": {question(nil, both, full), nil, nil},
		"five pods seem to fit a node that is full: each lacks a device": {
			question(pods(t, 5, 1, 48*gib, 0), []NodeType{eight}, full), map[string]int{"eight": 1}, map[string]int{"eight": 1}},
		"six: the autoscaler brings a node for the one that does not seem to": {
			question(pods(t, 6, 1, 48*gib, 0), []NodeType{eight}, full), nil, map[string]int{"eight": 1}},
		"of 32 from nothing it brings three nodes, four are needed": {
			question(pods(t, 32, 1, 48*gib, 0), []NodeType{eight}), map[string]int{"eight": 1}, map[string]int{"eight": 4}},
		"of pods that it does not look at, it brings none": {
			question(pods(t, 32, 1, 48*gib, 0, unseen), []NodeType{eight}), map[string]int{"eight": 4}, map[string]int{"eight": 4}},
		"four devices of 50 GiB each: twelve pods seem to fit a node, two do": {
			question(pods(t, 12, 4, 50*gib, 0), []NodeType{eight}), map[string]int{"eight": 5}, map[string]int{"eight": 6}},
		"of two types that which takes fewer devices": {
			question(pods(t, 3, 1, 48*gib, 0, unseen), both), map[string]int{"one": 3}, map[string]int{"one": 3}},
		"a pod of two devices cannot have nodes of one": {
			question(pods(t, 1, 2, 0, 0, unseen), both), map[string]int{"eight": 1}, map[string]int{"eight": 1}},
		"small pods go where large ones leave room": {
			question(append(pods(t, 1, 7, 0, 0, unseen), pod(t, "small", 1, 8*gib, 0, unseen)), both), map[string]int{"eight": 1}, map[string]int{"eight": 1}},
		"no type has such a device": {question(pods(t, 1, 1, 81*gib, 0, unseen), both), nil, nil},
		"no type has so many":       {question(pods(t, 1, 9, 0, 0, unseen), both), nil, nil},
		"no type has the processors": {
			question(pods(t, 1, 1, 0, 0, unseen, func(p *corev1.Pod) {
				p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("97")
			}), both), nil, nil},
		"no type has the label": {
			question(pods(t, 1, 1, 0, 0, unseen, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"pool": "x"} }), both), nil, nil},
		"a selector decides between types": {
			question(pods(t, 1, 1, 0, 0, unseen, func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{instance: "eight"} }), both),
			map[string]int{"eight": 1}, map[string]int{"eight": 1}},
		"a node that joins counts":           {question(pods(t, 8, 1, 48*gib, 0, unseen), []NodeType{eight}, joining), nil, nil},
		"and the pod that has no room there": {question(pods(t, 9, 1, 48*gib, 0, unseen), []NodeType{eight}, joining), map[string]int{"eight": 1}, map[string]int{"eight": 1}},
		"the first utility pod seems to fit a node with a broken device": {
			question(pods(t, 1, 8, 0, 0, unseen), []NodeType{eight}, broken), map[string]int{"eight": 2}, map[string]int{"eight": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			a := Decide(c.q)
			if got := count(a); !maps.Equal(got, c.asked) {
				t.Errorf("asks for %v, want %v", got, c.asked)
			}
			if !maps.Equal(a.Needed, c.needs) {
				t.Errorf("needs %v, want %v", a.Needed, c.needs)
			}
		})
	}
}

func TestNothingIsAskedForInTheFirstMinute(t *testing.T) {
	waiting := pods(t, 2, 1, 48*gib, 0, unseen)
	waiting[0].IsLong = false
	a := Decide(question(waiting, []NodeType{typeOf(t, "one", cards("b", 1))}))
	if got := count(a); got["one"] != 1 {
		t.Errorf("asks for %v", got)
	}
	if len(a.Served) != 2 {
		t.Errorf("new nodes would serve %v", a.Served)
	}
}

// What an autoscaler expects is wrong where it takes another type of node. When that has come, the
// rest is counted anew.
func TestTheRestIsAskedForWhenNodesHaveCome(t *testing.T) {
	eight := typeOf(t, "eight", cards("a", 8))
	waiting := pods(t, 32, 1, 48*gib, 0) // n = 4, m = 3
	var there []Seen
	for round := range 4 {
		a := Decide(question(waiting, []NodeType{eight}, there...))
		if len(waiting) == 0 {
			if len(a.Wishes) > 0 {
				t.Errorf("round %d: still asks for %v", round, count(a))
			}
			break
		}
		if a.Needed["eight"] != (len(waiting)+7)/8 {
			t.Errorf("round %d: %d pods need %v", round, len(waiting), a.Needed)
		}
		// A node comes and takes eight of them.
		n := seen(t, "eight", cards(fmt.Sprint("new", round), 8))
		for _, p := range waiting[:8] {
			if !n.Idle.takeIfFits(requestsOf(p.Object)) {
				t.Fatal("eight do not fit by sums")
			}
		}
		there, waiting = append(there, n), waiting[8:]
	}
	if len(waiting) > 0 {
		t.Errorf("%d wait at the end", len(waiting))
	}
}
