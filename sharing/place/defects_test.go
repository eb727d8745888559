// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"reflect"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
)

// These tests are named after the defects that were reproduced in the in-tree
// vgpu code of Volcano v1.14.1 (pkg/scheduler/api/devices/nvidia/vgpu), which
// this project replaces. Each comment says what went wrong there. Defects of the
// session, the wire and the binding are tested where those are.

// bench is one node and how pods get on it.
type bench struct {
	t      *testing.T
	ledger *sharing.Ledger
	policy policy.Policy
}

func onNode(t *testing.T, devices ...sharing.Device) *bench {
	p, _ := policy.Named("binpack")
	return &bench{t, sharing.NewLedger(sharingtest.Node("n1", devices...), factory.New()), p}
}

// try decides and changes nothing.
func (b *bench) try(pod *sharing.PodRequest) (sharing.Placement, sharing.Refusals) {
	return place.Place(b.ledger.Views(), pod, factory.New(), b.policy)
}

// place decides and reserves.
func (b *bench) place(pod *sharing.PodRequest) sharing.Placement {
	b.t.Helper()
	p, refusals := b.try(pod)
	if refusals.Refused() {
		b.t.Fatalf("%s: %s", pod.Owner, refusals.String())
	}
	if err := b.ledger.Reserve(pod.Owner, p); err != nil {
		b.t.Fatal(err)
	}
	if err := b.ledger.Check(); err != nil {
		b.t.Fatal(err)
	}
	return p
}

// refused decides, and fails unless it is no for this reason.
func (b *bench) refused(pod *sharing.PodRequest, want sharing.Reason) {
	b.t.Helper()
	p, refusals := b.try(pod)
	if !refusals.Refused() || refusals.Count[want] == 0 {
		b.t.Errorf("%s: %+v %s; want a refusal with %v", pod.Owner, p, refusals.String(), want)
	}
}

func (b *bench) view(i int) *sharing.View { return &b.ledger.Views()[i] }

func first(p sharing.Placement) sharing.Share { return p.Containers[0].Shares[0] }

// In-tree: TryAddPod does not record which instance it took, and AddPod then
// returns early, so the next pod of the session gets the same one.
func TestDefect01_TwoPartitionedPodsGetDifferentPartitions(t *testing.T) {
	b := onNode(t, sharingtest.Device(0, "A100-80", sharing.MIG))
	one := first(b.place(sharingtest.Pod("one", sharingtest.Ask("main", 15000, 0))))
	two := first(b.place(sharingtest.Pod("two", sharingtest.Ask("main", 15000, 0))))
	if one.Partition.Overlaps(two.Partition) || one.Partition.Position == two.Partition.Position {
		t.Errorf("%+v and %+v", one.Partition, two.Partition)
	}
}

// In-tree: usage is looked up per pod, so the second container of a pod does not
// see the first.
func TestDefect02_TwoContainersOfOnePodGetDifferentPartitions(t *testing.T) {
	b := onNode(t, sharingtest.Device(0, "A100-80", sharing.MIG))
	p := b.place(sharingtest.Pod("pod", sharingtest.Ask("a", 15000, 0), sharingtest.Ask("b", 15000, 0)))
	one, two := p.Containers[0].Shares[0].Partition, p.Containers[1].Shares[0].Partition
	if one.Overlaps(two) {
		t.Errorf("%+v and %+v", one, two)
	}
	if got := b.view(0).UsedMemory(); got != 2*sharing.MiBs(19968) {
		t.Errorf("%v used: both containers count", got)
	}
}

// In-tree: SubPod subtracts the memory that was requested, AddPod had added that
// of the instance.
func TestDefect03_ReleasingAPartitionLeavesNothingUsed(t *testing.T) {
	b := onNode(t, sharingtest.Device(0, "A100-80", sharing.MIG))
	before := *b.view(0)
	b.place(sharingtest.Pod("pod", sharingtest.Ask("main", 15000, 0)))
	b.ledger.Release("pod")
	if !reflect.DeepEqual(before, *b.view(0)) {
		t.Errorf("%v still used", b.view(0).UsedMemory())
	}
}

// In-tree: pickFromGroup stops at the first profile of the group that is in use.
func TestDefect04_EveryProfileOfAGeometryStaysReachable(t *testing.T) {
	b := onNode(t, sharingtest.Device(0, "A100-80", sharing.MIG))
	b.place(sharingtest.Pod("opens", sharingtest.Ask("main", 15000, 0)))
	small := first(b.place(sharingtest.Pod("small", sharingtest.Ask("main", 5000, 0))))
	large := first(b.place(sharingtest.Pod("large", sharingtest.Ask("main", 15000, 0))))
	if small.Partition.Profile != "1g.10gb" || large.Partition.Profile != "2g.20gb" {
		t.Errorf("%+v, %+v", small.Partition, large.Partition)
	}
}

// In-tree: MigUsage.Index is never reset, so the first geometry ever used stays.
func TestDefect05_AnEmptyDeviceTakesAnyGeometry(t *testing.T) {
	b := onNode(t, sharingtest.Device(0, "A100-80", sharing.MIG))
	b.place(sharingtest.Pod("small", sharingtest.Ask("main", 5000, 0)))
	large := sharingtest.Pod("large", sharingtest.Ask("main", 30000, 0))
	b.refused(large, sharing.NoPartitionFits)
	b.ledger.Release("small")
	if got := first(b.place(large)).Partition.Geometry; got != "group3" {
		t.Errorf("geometry %s, want group3", got)
	}
}

// In-tree: Allocate counts on the live state and returns at the first container
// that does not fit, leaving what the ones before it took.
func TestDefect06_RefusedPodLeavesNothingBehind(t *testing.T) {
	for _, mode := range sharing.Modes() {
		b := onNode(t, sharingtest.Device(0, "A30", mode))
		before := *b.view(0)
		_, refusals := b.try(sharingtest.Pod("pod", sharingtest.Ask("a", 11000, 10), sharingtest.Ask("b", 20000, 10)))
		if !refusals.Refused() || refusals.Container != "b" {
			t.Errorf("%s: %s", mode, refusals.String())
		}
		if !reflect.DeepEqual(before, *b.view(0)) || b.ledger.Len() != 0 {
			t.Errorf("%s: something was left behind", mode)
		}
	}
}

// In-tree: Allocate adds the usage and the informer's AddResource adds it again.
// The session's part of this is tested with the plugin.
func TestDefect07_APodSeenAgainCountsOnce(t *testing.T) {
	b := onNode(t, sharingtest.Device(0, "A100-80", sharing.HAMiCore))
	p := b.place(sharingtest.Pod("pod", sharingtest.Ask("main", 8192, 20)))
	used := *b.view(0)
	b.ledger.Record("pod", p)
	if err := b.ledger.Reserve("pod", p); err != nil {
		t.Error(err)
	}
	if !reflect.DeepEqual(used, *b.view(0)) {
		t.Errorf("%v used, want %v", b.view(0).UsedMemory(), used.UsedMemory())
	}
}

// In-tree: Release does nothing, so a discarded gang keeps its devices.
func TestDefect08_ADiscardedGangGivesEverythingBack(t *testing.T) {
	b := onNode(t, sharingtest.Device(0, "T4", sharing.HAMiCore), sharingtest.Device(1, "A30", sharing.MIG))
	before := []sharing.View{*b.view(0), *b.view(1)}
	gang := []string{"worker-0", "worker-1", "worker-2"}
	for _, name := range gang {
		b.place(sharingtest.Pod(name, sharingtest.Ask("main", 900, 0)))
	}
	for _, name := range gang {
		b.ledger.Release(sharing.Owner(name))
	}
	if !reflect.DeepEqual(before, b.ledger.Views()) || b.ledger.Len() != 0 {
		t.Error("something is still held")
	}
}

// In-tree: health is decoded and never looked at.
func TestDefect09_AnUnhealthyDeviceIsNotUsed(t *testing.T) {
	sick, well := sharingtest.Device(0, "A100-80", sharing.HAMiCore), sharingtest.Device(1, "T4", sharing.HAMiCore)
	sick.Healthy = false
	b := onNode(t, sick, well)
	if got := first(b.place(sharingtest.Pod("pod", sharingtest.Ask("main", 1000, 0)))).Device; got != well.ID {
		t.Errorf("placed on %s", got)
	}
	b.refused(sharingtest.Pod("large", sharingtest.Ask("main", 16000, 0)), sharing.Unhealthy)
}

// In-tree: devices are looped over as if their indexes were 0 to n-1; a gap is a
// nil pointer.
func TestDefect10_DeviceIndexesMayHaveGaps(t *testing.T) {
	b := onNode(t, sharingtest.Device(3, "T4", sharing.HAMiCore), sharingtest.Device(7, "T4", sharing.HAMiCore))
	p := b.place(sharingtest.Pod("pod", sharingtest.Times(2, sharingtest.Ask("main", 0, 0))))
	if got := p.Containers[0].Shares; got[0].Device != "GPU-3" || got[1].Device != "GPU-7" {
		t.Errorf("%+v", got)
	}
}

// In-tree: only app containers that ask for a number are looked at.
func TestDefect11_InitContainersAndRequestsForComputeOnlyCount(t *testing.T) {
	b := onNode(t, sharingtest.Device(0, "T4", sharing.HAMiCore))
	p := b.place(sharingtest.Pod("init", sharingtest.As(sharing.Init, sharingtest.Ask("setup", 15000, 0))))
	if len(p.Containers) != 1 || p.Containers[0].Kind != sharing.Init || b.view(0).UsedMemory() != sharing.MiBs(15000) {
		t.Errorf("%+v, %v used", p, b.view(0).UsedMemory())
	}
	b.refused(sharingtest.Pod("late", sharingtest.Ask("main", 1000, 0)), sharing.NotEnoughMemory)
	b.ledger.Release("init")
	b.place(sharingtest.Pod("compute", sharingtest.Ask("main", 0, 30)))
	if got := b.view(0).UsedCores(); got != 30 {
		t.Errorf("%d%% of compute used, want 30", got)
	}
}

// In-tree: a placement is a list by position, in which containers without devices
// have no entry, so that the node side gives a container another's devices.
func TestDefect12_SharesAreHeldByNamedContainers(t *testing.T) {
	b := onNode(t, sharingtest.Device(0, "A100-80", sharing.HAMiCore))
	p := b.place(sharingtest.Pod("pod", sharingtest.Ask("third", 3000, 0), sharingtest.Ask("fifth", 5000, 0)))
	for name, mib := range map[string]int64{"third": 3000, "fifth": 5000} {
		if c, ok := p.Container(name); !ok || c.Shares[0].Memory != sharing.MiBs(mib) {
			t.Errorf("%s holds %+v", name, c)
		}
	}
	if _, ok := p.Container("first"); ok {
		t.Error("a container that asked for nothing is in the placement")
	}
}

// In-tree: the last card decides the mode of the node, and a geometry that fails
// turns a MIG card into a hami-core card.
func TestDefect13_ModeIsPerDeviceAndNeverReplaced(t *testing.T) {
	b := onNode(t, sharingtest.Device(0, "A30", sharing.MIG), sharingtest.Device(1, "A30", sharing.HAMiCore))
	for mode, id := range map[sharing.Mode]sharing.DeviceID{sharing.MIG: "GPU-0", sharing.HAMiCore: "GPU-1"} {
		pod := sharingtest.Pod(string(mode), sharingtest.Ask("main", 5000, 0))
		pod.Modes = []sharing.Mode{mode}
		if s := first(b.place(pod)); s.Device != id || s.Mode != mode {
			t.Errorf("%s: %+v", mode, s)
		}
	}
	uncut := sharingtest.Device(0, "A30", sharing.MIG)
	partitioning := *uncut.MIG
	partitioning.Geometries = []sharing.Geometry{{Name: "wrong", Entries: []sharing.GeometryEntry{{Profile: "9g.99gb", Count: 1}}}}
	uncut.MIG = &partitioning
	onNode(t, uncut).refused(sharingtest.Pod("pod", sharingtest.Ask("main", 100, 0)), sharing.NoPartitionFits)
	for _, mode := range []sharing.Mode{"somewhat-shared", ""} {
		unknown := sharingtest.Device(0, "A30", mode)
		onNode(t, unknown).refused(sharingtest.Pod("pod", sharingtest.Ask("main", 100, 0)), sharing.NoBackend)
	}
}

// In-tree: a mode that does not match is refused like a full card, with a reason
// nobody can read, and pods are evicted in vain.
func TestDefect14_AHopelessRefusalSaysSo(t *testing.T) {
	b := onNode(t, sharingtest.Device(0, "A30", sharing.HAMiCore))
	pod := sharingtest.Pod("pod", sharingtest.Ask("main", 100, 0))
	pod.Modes = []sharing.Mode{sharing.MIG}
	_, refusals := b.try(pod)
	if refusals.Count[sharing.WrongMode] != 1 || refusals.Curable() {
		t.Errorf("%s, curable %v", refusals.String(), refusals.Curable())
	}
	huge := sharingtest.Pod("huge", sharingtest.Ask("main", 90000, 0))
	if possible(b.ledger.Views(), huge, factory.New(), b.policy) {
		t.Error("more memory than any device has is said to fit when others leave")
	}
	b.place(sharingtest.Pod("holder", sharingtest.Ask("main", 20000, 0)))
	waits := sharingtest.Pod("waits", sharingtest.Ask("main", 20000, 0))
	if _, r := b.try(waits); !r.Curable() || !possible(b.ledger.Views(), waits, factory.New(), b.policy) {
		t.Errorf("%s: would fit when the holder leaves", r.String())
	}
}

// In-tree: until a node's devices are known after a restart it counts as fitting,
// and a 1500 MiB pod was bound to 1000 MiB cards. The session's part of this is
// tested with the plugin; here, what is not known is not free.
func TestDefect15_WhatIsNotKnownIsNotFree(t *testing.T) {
	b := onNode(t, sharingtest.Device(0, "A30", sharing.HAMiCore))
	small := sharingtest.Pod("small", sharingtest.Ask("main", 100, 0))
	b.ledger.Block("unreadable")
	b.refused(small, sharing.Blocked)
	b.ledger.Release("unreadable")
	b.place(small)
	nothing := onNode(t)
	if _, refusals := nothing.try(small); !refusals.Refused() {
		t.Error("a node without devices fits")
	}
}
