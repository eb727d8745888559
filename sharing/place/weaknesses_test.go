// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"sync"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
)

// These are defects of the in-tree code that were found by reading it.

// In-tree: "copies" of a node share its map of pods, which 16 workers then read
// and write. The race detector watches this test.
func TestDefect16_ManyMayAskAtOnceAndForksAreIndependent(t *testing.T) {
	b := onNode(t, sharingtest.Device(0, "A100-80", sharing.HAMiCore), sharingtest.Device(1, "A100-80", sharing.MIG))
	b.place(sharingtest.Pod("there", sharingtest.Ask("main", 1000, 0)))
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			fork := b.ledger.Fork()
			for range 20 {
				pod := sharingtest.Pod(string(rune('a'+i)), sharingtest.Ask("main", 5000, 5))
				p, refusals := place.Place(b.ledger.Views(), pod, factory.New(), b.policy)
				if refusals.Refused() {
					t.Error(refusals.String())
					return
				}
				if err := fork.Reserve(pod.Owner, p); err != nil {
					t.Error(err)
				}
				fork.Release(pod.Owner)
				fork.Release("there")
			}
		})
	}
	wg.Wait()
	if b.ledger.Len() != 1 || b.view(0).Sharers()+b.view(1).Sharers() != 1 {
		t.Error("a fork changed the ledger")
	}
}

// In-tree: the score is a side effect of the filter, summed over the cards.
func TestDefect17_AScoreDependsOnTheNodeOnly(t *testing.T) {
	two := onNode(t, sharingtest.Device(0, "A30", sharing.HAMiCore), sharingtest.Device(1, "A30", sharing.HAMiCore))
	one := onNode(t, sharingtest.Device(0, "A30", sharing.HAMiCore))
	pod := sharingtest.Pod("pod", sharingtest.Ask("main", 1000, 0))
	for _, name := range policy.Names() {
		p, _ := policy.Named(name)
		before := scoreOf(one.ledger, pod, p)
		one.try(pod)
		if got := scoreOf(one.ledger, pod, p); got != before || got != scoreOf(two.ledger, pod, p) {
			t.Errorf("%s: %v, then %v; %v with twice the devices", name, before, got, scoreOf(two.ledger, pod, p))
		}
	}
}

// In-tree: compute 100 needs an entirely empty card, and compute 0 is refused on
// a card whose compute is all given.
func TestDefect18_NoComputeAskedIsNoComputeNeeded(t *testing.T) {
	b := onNode(t, sharingtest.Device(0, "A30", sharing.HAMiCore))
	b.place(sharingtest.Pod("one", sharingtest.Ask("main", 1000, 60)))
	b.place(sharingtest.Pod("two", sharingtest.Ask("main", 1000, 40)))
	b.place(sharingtest.Pod("none", sharingtest.Ask("main", 1000, 0)))
	b.refused(sharingtest.Pod("more", sharingtest.Ask("main", 1000, 1)), sharing.NotEnoughCores)
	b.refused(sharingtest.Pod("all", sharingtest.Ask("main", 1000, 100)), sharing.NotEmpty)

	exclusive := onNode(t, sharingtest.Device(0, "A30", sharing.HAMiCore))
	exclusive.place(sharingtest.Pod("all", sharingtest.Ask("main", 1000, 100)))
	exclusive.refused(sharingtest.Pod("none", sharingtest.Ask("main", 1000, 0)), sharing.HeldExclusively)
}

// In-tree: UUIDs match if one contains the other.
func TestDefect19_DeviceIDsMatchAsAWhole(t *testing.T) {
	b := onNode(t, sharingtest.Device(1, "A30", sharing.HAMiCore), sharingtest.Device(10, "A30", sharing.HAMiCore))
	pod := sharingtest.Pod("pod", sharingtest.Ask("main", 1000, 0))
	pod.Selector.NotIDs = []sharing.DeviceID{"GPU-1"}
	if got := first(b.place(pod)).Device; got != "GPU-10" {
		t.Errorf("placed on %s", got)
	}
	pod = sharingtest.Pod("another", sharingtest.Ask("main", 1000, 0))
	pod.Selector.UseIDs = []sharing.DeviceID{"GPU"}
	b.refused(pod, sharing.NotSelected)
}
