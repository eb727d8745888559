// SPDX-License-Identifier: Apache-2.0

package plan_test

import (
	"fmt"
	"slices"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/plan"
	"deviceshare/sharing/sharingtest"
)

// fullCluster has nodes of 8 devices with so many pods on each. No two pods have run for the same
// time.
func fullCluster(tb testing.TB, mode sharing.Mode, nodes, perDevice, level int) *plan.World {
	memory := int64(81920 / perDevice)
	if mode == sharing.MIG {
		memory = 9728
	}
	w := &plan.World{}
	for n := range nodes {
		inv := sharingtest.Node(fmt.Sprint("n", n))
		for i := range 8 {
			inv.Devices = append(inv.Devices, sharingtest.Free(sharingtest.Device(i, "A100-80", mode)))
		}
		ledger := sharing.NewLedger(inv, factory.New())
		var victims []*plan.Victim
		for i := range 8 * perDevice {
			pod := sharingtest.Pod(fmt.Sprintf("n%d-%d", n, i), sharingtest.Ask("c", memory, 0))
			p, refused := place.Place(ledger.Views(), pod, factory.New(), binpack())
			if refused.Refused() {
				tb.Fatal(refused.Count)
			}
			if err := ledger.Reserve(pod.Owner, p); err != nil {
				tb.Fatal(err)
			}
			victims = append(victims, &plan.Victim{
				Owner: pod.Owner, Level: level, Takes: []int64{1}, Grace: 30, Age: int64((n*7919 + i*104729) % 7200),
			})
		}
		w.Nodes = append(w.Nodes, plan.NewNode(inv.Node, ledger.Views(), []int64{0}, []int64{int64(len(victims))}, victims))
	}
	return w
}

// BenchmarkFind plans for one pod on 5,000 full nodes of 8 devices, without what is kept between
// sessions.
func BenchmarkFind(b *testing.B) {
	for _, c := range []struct {
		name      string
		mode      sharing.Mode
		perDevice int
		level     int
		request   sharing.Request
	}{
		{"one-whole-of-1", sharing.HAMiCore, 1, 1, sharingtest.Ask("c", 0, 0)},
		{"one-whole-of-4", sharing.HAMiCore, 4, 1, sharingtest.Ask("c", 0, 0)},
		{"four-whole-of-4", sharing.HAMiCore, 4, 1, sharingtest.Times(4, sharingtest.Ask("c", 0, 0))},
		{"share-of-10", sharing.HAMiCore, 10, 1, sharingtest.Ask("c", 20480, 0)},
		{"eight-whole-of-10", sharing.HAMiCore, 10, 1, sharingtest.Times(8, sharingtest.Ask("c", 0, 0))},
		{"partition-of-7", sharing.MIG, 7, 1, sharingtest.Ask("c", 40000, 0)},
		{"no", sharing.HAMiCore, 4, 9, sharingtest.Ask("c", 0, 0)},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := fullCluster(b, c.mode, 5000, c.perDevice, c.level)
			wish := &plan.Wish{Request: sharingtest.Pod("wish", c.request), Backends: factory.New(), Policy: binpack(), Takes: []int64{1}, Level: 9}
			b.ResetTimer()
			for b.Loop() {
				// What partitions cost at least is not known beforehand: the search gives up.
				if p, no := plan.Find(w, wish); (no != nil) != (c.level == 9) || no == nil && p.Proven == (c.mode == sharing.MIG) {
					b.Fatalf("%+v, %+v", p, no)
				}
			}
		})
	}
}

// BenchmarkFindTogether plans for pods that start together, on full nodes of 8 devices.
func BenchmarkFindTogether(b *testing.B) {
	for _, c := range []struct {
		name                   string
		nodes, perDevice, pods int
		request                sharing.Request
	}{
		{"250-times-8-devices-of-500-nodes", 500, 1, 250, sharingtest.Times(8, sharingtest.Ask("c", 0, 0))},
		{"10-devices-of-500-nodes", 500, 1, 10, sharingtest.Ask("c", 0, 0)},
		{"100-shares-of-500-nodes", 500, 10, 100, sharingtest.Ask("c", 20480, 0)},
		{"8-times-8-devices-of-5000-nodes", 5000, 4, 8, sharingtest.Times(8, sharingtest.Ask("c", 0, 0))},
	} {
		b.Run(c.name, func(b *testing.B) {
			w := fullCluster(b, sharing.HAMiCore, c.nodes, c.perDevice, 1)
			wish := &plan.Wish{Request: sharingtest.Pod("wish", c.request), Backends: factory.New(), Policy: binpack(), Takes: []int64{1}, Level: 9}
			proven := false
			b.ResetTimer()
			for b.Loop() {
				p, no := plan.FindTogether(w, slices.Repeat([]*plan.Wish{wish}, c.pods))
				if no != nil {
					b.Fatalf("%+v", no)
				}
				proven = p.Proven
			}
			b.Logf("proven: %v", proven)
		})
	}
}
