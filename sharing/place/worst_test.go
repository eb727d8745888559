// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/mig"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/wire"
)

// crafted is a node that somebody made up to keep schedulers busy: as many devices and geometries
// as the reader of inventories accepts, of which no two are alike.
func crafted(t testing.TB, p sharing.PartitionPolicy, slices int, random *rand.Rand) *sharing.Inventory {
	t.Helper()
	var devices []sharing.Device
	for i := range 16 {
		d := sharingtest.Device(i, "A100-80", sharing.MIG)
		d.MaxShares, d.MIG = 1000, &sharing.Partitioning{Slices: slices, Policy: p}
		for size := 1; size <= 8; size *= 2 {
			q := sharing.Profile{Name: fmt.Sprintf("%dg.1gb", size), Memory: sharing.Bytes(size)*sharing.GiB + sharing.Bytes(i), Compute: size, Size: size}
			for start := range slices - size + 1 {
				q.Starts = append(q.Starts, start)
			}
			d.MIG.Profiles = append(d.MIG.Profiles, q)
		}
		for g := range 32 {
			four := random.IntN(slices / 4)
			two := random.IntN((slices - 4*four) / 2)
			group := sharing.Geometry{Name: fmt.Sprint("g", g)}
			for _, e := range []sharing.GeometryEntry{
				{Profile: "1g.1gb", Memory: sharing.GiB, Count: slices - 4*four - 2*two},
				{Profile: "4g.1gb", Memory: 4 * sharing.GiB, Count: four}, {Profile: "2g.1gb", Memory: 2 * sharing.GiB, Count: two},
			} {
				if e.Count > 0 {
					group.Entries = append(group.Entries, e)
				}
			}
			d.MIG.Geometries = append(d.MIG.Geometries, group)
		}
		devices = append(devices, d)
	}
	text, err := wire.EncodeInventory(*sharingtest.Node("n1", devices...))
	if err != nil {
		t.Fatal(err)
	}
	inv, err := wire.DecodeInventory(text)
	if err != nil {
		t.Fatalf("the reader refuses it, so it is no attack: %v", err)
	}
	return &inv
}

// many is a pod of as many containers as may ask for devices, of which the last finds no room.
func many(containers, last int) *sharing.PodRequest {
	var all []sharing.Request
	for i := range containers - 1 {
		all = append(all, sharingtest.Ask(fmt.Sprint("c", i), 900, 0))
	}
	end := sharingtest.Ask("last", 4000, 0)
	end.Count = last
	return sharingtest.Pod("p", append(all, end)...)
}

// weighing is the backend of partitions, which counts how much it is asked.
type weighing struct {
	sharing.Planner
	asked *int
}

func (c weighing) Fit(v *sharing.View, r *sharing.Request) (sharing.Cost, sharing.Reason) {
	*c.asked += v.Effort()
	return c.Planner.Fit(v, r)
}

func (c weighing) Option(v *sharing.View, r *sharing.Request, n int) (sharing.Share, sharing.Cost, bool) {
	*c.asked += v.Effort()
	return c.Planner.(sharing.Chooser).Option(v, r, n)
}

func TestNoAcceptedNodeAndPodKeepASchedulerBusy(t *testing.T) {
	for seed := range uint64(6) {
		random := rand.New(rand.NewPCG(seed, 3))
		for _, p := range []sharing.PartitionPolicy{sharing.FirstMatch, sharing.BestFit} {
			asked := 0
			backends := sharing.Backends{weighing{mig.New().(sharing.Planner), &asked}}
			views := sharing.NewLedger(crafted(t, p, 8+8*int(seed%2), random), backends).Views()
			binpack, _ := policy.Named("binpack")
			for _, containers := range []int{1, 2, 8, 64} {
				asked = 0
				place.Place(views, many(containers, 16), backends, binpack)
				// Each container with each device, each of them alone, and the search.
				once := containers * len(views) * views[0].Effort()
				if most := 2*once + 300_000; asked > most {
					t.Errorf("seed %d, %s, %d containers: the backend was asked %d, at most %d is bearable", seed, p, containers, asked, most)
				}
			}
		}
	}
}

// BenchmarkWorst is the most that the readers of inventories and requests let anybody ask.
func BenchmarkWorst(b *testing.B) {
	for _, p := range []sharing.PartitionPolicy{sharing.FirstMatch, sharing.BestFit} {
		inv := crafted(b, p, 8, rand.New(rand.NewPCG(1, 3)))
		b.Run(p.String()+"/ledger", func(b *testing.B) {
			for b.Loop() {
				sharing.NewLedger(inv, factory.New())
			}
		})
		views, backends := sharing.NewLedger(inv, factory.New()).Views(), factory.New()
		binpack, _ := policy.Named("binpack")
		for _, containers := range []int{2, 8, 64} {
			b.Run(fmt.Sprintf("%s/%d containers", p, containers), func(b *testing.B) {
				for b.Loop() {
					place.Place(views, many(containers, 16), backends, binpack)
				}
			})
		}
	}
}
