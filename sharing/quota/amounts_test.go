// SPDX-License-Identifier: Apache-2.0

package quota_test

import (
	"maps"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/quota"
	"deviceshare/sharing/sharingtest"
)

func container(kind sharing.ContainerKind, shares ...sharing.Share) sharing.ContainerShares {
	return sharing.ContainerShares{Kind: kind, Shares: shares}
}

func share(device string, memoryGiB int64, cores sharing.Percent) sharing.Share {
	return sharing.Share{Device: sharing.DeviceID(device), Memory: sharing.Bytes(memoryGiB * gib), Cores: cores}
}

func inventory() *sharing.Inventory {
	return &sharing.Inventory{Devices: []sharing.Device{
		{ID: "b0", Model: "Big", Memory: sharing.Bytes(80 * gib), Cores: 100, Healthy: true},
		{ID: "b1", Model: "Big", Memory: sharing.Bytes(80 * gib), Cores: 100, Healthy: true},
		{ID: "s0", Model: "Small", Memory: sharing.Bytes(24 * gib), Cores: 100, Healthy: true},
		{ID: "broken", Model: "Small", Memory: sharing.Bytes(24 * gib), Cores: 100},
	}}
}

func TestWhatAPlacementTakes(t *testing.T) {
	for name, c := range map[string]struct {
		containers []sharing.ContainerShares
		want       quota.Amounts
	}{
		"nothing": {},
		"the number of devices times the amounts": {
			containers: []sharing.ContainerShares{container(sharing.App, share("b0", 10, 30), share("b1", 10, 30))},
			want:       amounts("Big", 20, 60),
		},
		"two containers on one device": {
			containers: []sharing.ContainerShares{container(sharing.App, share("b0", 10, 30)), container(sharing.App, share("b0", 5, 0))},
			want:       amounts("Big", 15, 30),
		},
		"all memory is all compute": {
			containers: []sharing.ContainerShares{container(sharing.App, share("s0", 24, 0))}, want: amounts("Small", 24, 100),
		},
		"all memory with part of the compute": {
			containers: []sharing.ContainerShares{container(sharing.App, share("s0", 24, 40))}, want: amounts("Small", 24, 40),
		},
		"each model for itself": {
			containers: []sharing.ContainerShares{container(sharing.App, share("s0", 4, 1)), container(sharing.App, share("b0", 8, 2))},
			want:       append(amounts("Big", 8, 2), amounts("Small", 4, 1)...),
		},
		"an init container overlaps with the others": {
			containers: []sharing.ContainerShares{container(sharing.Init, share("b0", 30, 0)), container(sharing.App, share("b0", 10, 10))},
			want:       amounts("Big", 30, 10),
		},
		"a sidecar does not": {
			containers: []sharing.ContainerShares{container(sharing.Sidecar, share("b0", 5, 5)), container(sharing.Init, share("b0", 30, 0)), container(sharing.App, share("b0", 10, 10))},
			want:       amounts("Big", 35, 15),
		},
		"what is kept on different devices is kept on both": {
			containers: []sharing.ContainerShares{container(sharing.Init, share("b0", 30, 0)), container(sharing.App, share("b1", 10, 10))},
			want:       amounts("Big", 40, 10),
		},
		"a device that the node does not have": {
			containers: []sharing.ContainerShares{container(sharing.App, share("x", 1, 1))}, want: amounts("", 1, 1),
		},
		"an amount that makes no room": {
			containers: []sharing.ContainerShares{container(sharing.App, share("b0", -1, -1), share("b1", 3, 3))}, want: amounts("Big", 3, 3),
		},
		"an amount beyond all devices": {
			containers: []sharing.ContainerShares{container(sharing.App, share("b0", 1<<30, 0), share("b1", 1<<30, 0))},
			want:       quota.Amounts{{Model: "Big", Memory: 1 << 45, Cores: 200}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := quota.Held(&sharing.Placement{Containers: c.containers}, inventory()); !same(got, c.want) {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

// same compares amounts; what is 0 need not be there.
func same(a, b quota.Amounts) bool {
	sum := map[string][2]int64{} // shares are counted in a test of their own
	for i, list := range []quota.Amounts{a, b} {
		sign := int64(1 - 2*i)
		for _, p := range list {
			s := sum[p.Model]
			sum[p.Model] = [2]int64{s[0] + sign*p.Memory, s[1] + sign*p.Cores}
		}
	}
	for _, s := range sum {
		if s != [2]int64{} {
			return false
		}
	}
	return true
}

// shares gives amounts of one model a number.
func shares(number int64, a quota.Amounts) quota.Amounts {
	a[0].Number = number
	return a
}

// What nobody else can have counts, and not what the containers were given.
func TestAPodThatAcceptsNoOtherTakesItsDevices(t *testing.T) {
	alone := &sharing.Neighbours{Accepts: sharing.AcceptsNone}
	for name, c := range map[string]struct {
		containers []sharing.ContainerShares
		requests   []sharing.Request
		held       quota.Amounts
		asked      quota.Amounts
	}{
		"a small share is a device": {
			containers: []sharing.ContainerShares{container(sharing.App, share("b0", 4, 10))},
			requests:   []sharing.Request{{Count: 1, Memory: sharing.AbsoluteMemory(sharing.Bytes(4 * gib)), Cores: 10}},
			held:       amounts("Big", 80, 100), asked: amounts("", 24, 100),
		},
		"two containers on one device are one": {
			containers: []sharing.ContainerShares{container(sharing.App, share("s0", 4, 10)), container(sharing.App, share("s0", 5, 0))},
			requests:   []sharing.Request{{Count: 1, Memory: sharing.AbsoluteMemory(sharing.Bytes(4 * gib))}, {Count: 1, Memory: sharing.AbsoluteMemory(sharing.Bytes(5 * gib))}},
			held:       amounts("Small", 24, 100), asked: amounts("", 24, 100),
		},
		"several devices are as many, of an init container, too": {
			containers: []sharing.ContainerShares{container(sharing.Init, share("b0", 4, 0), share("b1", 4, 0)), container(sharing.App, share("s0", 30, 0))},
			requests:   []sharing.Request{{Kind: sharing.Init, Count: 2, Memory: sharing.AbsoluteMemory(sharing.Bytes(4 * gib))}, {Count: 1, Memory: sharing.AbsoluteMemory(sharing.Bytes(30 * gib))}},
			held:       append(amounts("Big", 160, 200), amounts("Small", 30, 100)...), asked: amounts("", 48, 200),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := quota.Held(&sharing.Placement{Containers: c.containers, Neighbours: alone}, inventory()); !same(got, c.held) {
				t.Errorf("holds %+v, want %+v", got, c.held)
			}
			if got := quota.Asked(&sharing.PodRequest{Requests: c.requests, Neighbours: alone}, quota.KindsOf(inventory())); !same(got, c.asked) {
				t.Errorf("asks %+v, want %+v", got, c.asked)
			}
		})
	}
}

func TestSharesAreCountedAsVolcanoCountsThem(t *testing.T) {
	for name, c := range map[string]struct {
		containers []sharing.ContainerShares
		want       map[string]int64
	}{
		"each share of each container": {
			containers: []sharing.ContainerShares{container(sharing.App, share("b0", 1, 1), share("b1", 1, 1)), container(sharing.App, share("b0", 1, 0))},
			want:       map[string]int64{"Big": 3},
		},
		"an init container overlaps, on whichever device": {
			containers: []sharing.ContainerShares{container(sharing.Init, share("b0", 30, 0)), container(sharing.App, share("b1", 10, 10))},
			want:       map[string]int64{"Big": 1},
		},
		"a sidecar adds": {
			containers: []sharing.ContainerShares{container(sharing.Sidecar, share("b0", 5, 5)), container(sharing.Init, share("b0", 1, 0)), container(sharing.App, share("b0", 1, 1))},
			want:       map[string]int64{"Big": 2},
		},
		"by model": {
			containers: []sharing.ContainerShares{container(sharing.App, share("s0", 4, 1), share("x", 1, 1)), container(sharing.App, share("b0", 8, 2))},
			want:       map[string]int64{"Big": 1, "Small": 1, "": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]int64{}
			for _, part := range quota.Held(&sharing.Placement{Containers: c.containers}, inventory()) {
				got[part.Model] = part.Number
			}
			if !maps.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

func TestWhatAPodAsksAtLeast(t *testing.T) {
	kinds := quota.KindsOf(inventory())
	if len(kinds) != 2 {
		t.Fatalf("%d kinds of devices, want 2", len(kinds))
	}
	ask := func(kind sharing.ContainerKind, count int, m sharing.Memory, cores sharing.Percent) sharing.Request {
		return sharing.Request{Kind: kind, Count: count, Memory: m, Cores: cores}
	}
	absolute := func(n int64) sharing.Memory { return sharing.AbsoluteMemory(sharing.Bytes(n * gib)) }
	for name, c := range map[string]struct {
		requests []sharing.Request
		models   []string
		modes    []sharing.Mode
		kinds    quota.Kinds
		want     quota.Amounts
	}{
		"amounts that are written, times the number": {
			requests: []sharing.Request{ask(sharing.App, 3, absolute(10), 20)}, kinds: kinds, want: shares(3, amounts("", 30, 60)),
		},
		"a whole device is the smallest one, with all of its compute": {
			requests: []sharing.Request{ask(sharing.App, 2, sharing.WholeMemory(), 0)}, kinds: kinds, want: shares(2, amounts("", 48, 200)),
		},
		"a percentage is one of the smallest": {
			requests: []sharing.Request{ask(sharing.App, 1, sharing.PercentMemory(50), 0)}, kinds: kinds, want: shares(1, amounts("", 12, 0)),
		},
		"of the models that the pod takes": {
			requests: []sharing.Request{ask(sharing.App, 1, sharing.WholeMemory(), 30)}, models: []string{"big"}, kinds: kinds, want: shares(1, amounts("Big", 80, 30)),
		},
		"in the modes that the pod takes there is none": {
			requests: []sharing.Request{ask(sharing.App, 1, sharing.WholeMemory(), 0)}, modes: []sharing.Mode{sharing.MPS}, kinds: kinds, want: shares(1, amounts("", 0, 100)),
		},
		"no device is known": {
			requests: []sharing.Request{ask(sharing.App, 1, sharing.WholeMemory(), 0), ask(sharing.App, 1, absolute(5), 0)}, want: shares(2, amounts("", 5, 100)),
		},
		"init containers and sidecars": {
			requests: []sharing.Request{ask(sharing.Sidecar, 1, absolute(5), 5), ask(sharing.Init, 1, absolute(30), 10), ask(sharing.App, 1, absolute(10), 20)},
			kinds:    kinds, want: shares(2, amounts("", 35, 25)),
		},
		"more than there can be": {
			requests: []sharing.Request{ask(sharing.App, 1000, sharing.AbsoluteMemory(sharing.MaxBytes), 100)}, kinds: kinds,
			want: quota.Amounts{{Memory: 1 << 45, Cores: 100000, Number: 1000}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := sharing.PodRequest{Requests: c.requests, Modes: c.modes, Selector: sharing.Selector{UseModels: c.models}}
			if got := quota.Asked(&pod, c.kinds); len(got) != 1 || got[0] != c.want[0] {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestAPartitionMayHaveLessThanItsPartOfTheDevice(t *testing.T) {
	d := sharingtest.Device(0, "A100-80", sharing.MIG)
	for name, c := range map[string]struct {
		memory sharing.Memory
		want   sharing.Bytes
	}{
		"all of it":       {sharing.WholeMemory(), d.MIG.Profiles[len(d.MIG.Profiles)-1].Memory},
		"an eighth of it": {sharing.PercentMemory(12), d.MIG.Profiles[0].Memory},
	} {
		pod := sharingtest.Pod("p", sharing.Request{Count: 1, Memory: c.memory})
		got := quota.Asked(pod, quota.Kinds{d})
		if got[0].Memory <= 0 || got[0].Memory > int64(c.want) {
			t.Errorf("%s: %d, want at most %d", name, got[0].Memory, c.want)
		}
	}
}

func TestDevicesThatAreCutAlikeAreOneKind(t *testing.T) {
	one, other := sharingtest.Device(0, "A100-80", sharing.MIG), sharingtest.Device(1, "A100-80", sharing.MIG)
	alike := *other.MIG
	other.MIG = &alike
	free := sharingtest.Free(sharingtest.Device(2, "A100-80", sharing.MIG))
	for name, c := range map[string]struct {
		second sharing.Device
		kinds  int
	}{
		"read twice":                {other, 1},
		"with other geometries":     {free, 2},
		"not cut":                   {sharingtest.Device(3, "A100-80", sharing.HAMiCore), 2},
		"of which nothing is known": {sharing.Device{Model: one.Model, Memory: one.Memory, Mode: sharing.MIG}, 2},
	} {
		if got := len(quota.KindsOf(sharingtest.Node("a", one), sharingtest.Node("b", c.second))); got != c.kinds {
			t.Errorf("%s: %d kinds, want %d", name, got, c.kinds)
		}
	}
}

func TestOnlyDevicesThatWorkAreThereToBeGuaranteed(t *testing.T) {
	want := append(amounts("Big", 160, 200), amounts("Small", 24, 100)...)
	if got := quota.Total(inventory()); !same(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
