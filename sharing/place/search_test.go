// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
)

// The first choice is wrong for all but the last container, on a node of 8
// devices that all differ, so that none is skipped for being like another.
func TestASearchGoesBackAsFarAsItMust(t *testing.T) {
	var devices []sharing.Device
	for i := range 8 {
		d := sharingtest.Device(i, "A30", sharing.HAMiCore)
		d.Memory = sharing.Bytes(10+i) * sharing.GiB
		devices = append(devices, d)
	}
	b := onNode(t, devices...)
	b.policy, _ = policy.Named("spread")
	// Spread takes the largest device for the first container, which only the
	// second can use.
	for first := range int64(7) {
		b.place(sharingtest.Pod("pod", sharingtest.Ask("a", 1024*(9-first), 100), sharingtest.Ask("b", 1024*17, 100)))
		b.ledger.Release("pod")
	}
	// Every device is needed, each by the container that fits no smaller one.
	deep := sharingtest.Pod("deep")
	for i := range int64(8) {
		deep.Requests = append(deep.Requests, sharingtest.Ask(fmt.Sprint("c", i), 1024*(17-i), 100))
	}
	p := b.place(deep)
	for i, c := range p.Containers {
		if want := sharing.DeviceID(fmt.Sprint("GPU-", 7-i)); c.Shares[0].Device != want {
			t.Errorf("%s got %s, want %s", c.Container, c.Shares[0].Device, want)
		}
	}
}

// More shares could be given than a search looks at: the best ones are looked at.
func TestASearchLooksAtTheBestChoicesFirst(t *testing.T) {
	var devices []sharing.Device
	for i := range 6 {
		devices = append(devices, sharingtest.Free(sharingtest.Device(i, "A100-80", sharing.MIG)))
	}
	b := onNode(t, devices...)
	for i := range 5 {
		b.place(sharingtest.Pod(fmt.Sprint("holder-", i), sharingtest.Ask("main", 40000, 57)))
	}
	// The first container alone would sit in the only device that is whole.
	b.policy, _ = policy.Named("spread")
	p := b.place(sharingtest.Pod("pod", sharingtest.Ask("a", 5000, 0), sharingtest.Ask("b", 0, 0)))
	if p.Containers[1].Shares[0].Partition.Profile != "7g.80gb" {
		t.Errorf("%+v", p)
	}
}

func TestDevicesOfOneContainerAreNearEachOther(t *testing.T) {
	link := func(d sharing.Device, kind string, peer sharing.DeviceID) sharing.Device {
		d.Links = append(d.Links, sharing.Link{Peer: peer, Kind: kind})
		return d
	}
	on := func(numa int, d sharing.Device) sharing.Device {
		d.NUMA = numa
		return d
	}
	gpu := func(i int) sharing.Device { return sharingtest.Device(i, "A100-80", sharing.HAMiCore) }
	cases := map[string]struct {
		devices []sharing.Device
		want    []sharing.DeviceID
	}{
		"no difference":                    {[]sharing.Device{gpu(0), gpu(1), gpu(2)}, []sharing.DeviceID{"GPU-0", "GPU-1"}},
		"linked":                           {[]sharing.Device{link(gpu(0), "nvlink", "GPU-2"), gpu(1), link(gpu(2), "nvlink", "GPU-0")}, []sharing.DeviceID{"GPU-0", "GPU-2"}},
		"another kind of link":             {[]sharing.Device{gpu(0), gpu(1), link(gpu(2), "sys", "GPU-0")}, []sharing.DeviceID{"GPU-0", "GPU-1"}},
		"on one NUMA node":                 {[]sharing.Device{on(1, gpu(0)), on(0, gpu(1)), on(1, gpu(2))}, []sharing.DeviceID{"GPU-0", "GPU-2"}},
		"unknown NUMA nodes are not equal": {[]sharing.Device{on(-1, gpu(0)), on(0, gpu(1)), on(-1, gpu(2))}, []sharing.DeviceID{"GPU-0", "GPU-1"}},
		"a link counts more than a node":   {[]sharing.Device{on(0, gpu(0)), on(0, gpu(1)), on(1, link(gpu(2), "nvlink", "GPU-0"))}, []sharing.DeviceID{"GPU-0", "GPU-2"}},
	}
	for says, c := range cases {
		t.Run(says, func(t *testing.T) {
			shares := onNode(t, c.devices...).place(sharingtest.Pod("p", sharingtest.Times(2, sharingtest.Ask("main", 0, 0)))).Containers[0].Shares
			if shares[0].Device != c.want[0] || shares[1].Device != c.want[1] {
				t.Errorf("%s and %s, want %v", shares[0].Device, shares[1].Device, c.want)
			}
		})
	}
}

// churn lets pods come and go on partitioned devices and returns how many memory
// slices of those that were asked for could be given.
func churn(devices int, free bool, seed uint64) (given, asked int) {
	inv := &sharing.Inventory{Node: "n1"}
	for i := range devices {
		d := sharingtest.Device(i, "A100-80", sharing.MIG)
		if free {
			d = sharingtest.Free(d)
		}
		inv.Devices = append(inv.Devices, d)
	}
	sizes := []struct {
		mib   int64
		cores sharing.Percent
		size  int
	}{{9000, 14, 1}, {19000, 28, 2}, {40000, 42, 4}, {80000, 100, 8}}
	l, r := sharing.NewLedger(inv, factory.New()), rand.New(rand.NewPCG(seed, 9))
	binpack, _ := policy.Named("binpack")
	var here []sharing.Owner
	for i := range 150 * devices {
		for len(here) > 0 && r.IntN(4*devices) < len(here) {
			k := r.IntN(len(here))
			l.Release(here[k])
			here = append(here[:k], here[k+1:]...)
		}
		s := sizes[r.IntN(len(sizes))]
		pod := sharingtest.Pod(fmt.Sprint(i), sharingtest.Ask("main", s.mib, s.cores))
		asked += s.size
		if p, refusals := place.Place(l.Views(), pod, factory.New(), binpack); !refusals.Refused() {
			if err := l.Reserve(pod.Owner, p); err != nil {
				panic(err)
			}
			here = append(here, pod.Owner)
			given += s.size
		}
	}
	return given, asked
}

// Without geometries a device is used better, since partitions of different kinds
// share it. This is what an administrator pays for listing geometries.
func TestFreePartitionsServeMoreThanListedGeometries(t *testing.T) {
	var free, listed, asked int
	for seed := range uint64(4) {
		g, n := churn(4, true, seed)
		free, asked = free+g, asked+n
		g, _ = churn(4, false, seed)
		listed += g
	}
	t.Logf("of %d slices asked %d are given freely, %d by geometries", asked, free, listed)
	if free*100 < listed*103 || free >= asked {
		t.Errorf("of %d slices asked %d are given freely, %d by geometries", asked, free, listed)
	}
}

// BenchmarkSearch is the worst a refusal costs: all choices are tried in vain.
func BenchmarkSearch(b *testing.B) {
	for says, mode := range map[string]sharing.Mode{"amounts": sharing.HAMiCore, "partitions": sharing.MIG} {
		inv := &sharing.Inventory{Node: "n1"}
		for i := range 8 {
			d := sharingtest.Device(i, "A100-80", mode)
			d.Memory -= sharing.Bytes(i) * sharing.GiB // no two alike
			inv.Devices = append(inv.Devices, d)
		}
		views := sharing.NewLedger(inv, factory.New()).Views()
		pod := sharingtest.Pod("p")
		for i := range 9 {
			pod.Requests = append(pod.Requests, sharingtest.Ask(fmt.Sprint("c", i), 40000, 90))
		}
		binpack, _ := policy.Named("binpack")
		backends := factory.New()
		b.Run(says, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, r := place.Place(views, pod, backends, binpack); !r.Refused() {
					b.Fatal("placed")
				}
			}
		})
	}
}
