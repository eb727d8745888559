// SPDX-License-Identifier: Apache-2.0

package config_test

import (
	"fmt"
	"slices"
	"testing"

	"deviceshare/config"
	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
)

// reported is what `nvidia-smi mig -lgip` prints for cards, in GiB by the number of memory slices:
// 1, 2, 4 and 8. A card is here once for each driver that reports something else. The A30 has 4
// slices. Of the B200, 3g and 7g were not at hand.
var reported = []struct {
	model string
	gib   map[int]float64
}{
	{"A30", map[int]float64{1: 5.8125, 2: 11.6875, 4: 23.4375}},
	{"A30", map[int]float64{1: 5.8125, 2: 11.6875, 4: 23.5}},
	{"A100-40", map[int]float64{1: 4.75, 2: 9.625, 4: 19.5, 8: 39.25}},
	{"A100-40", map[int]float64{1: 4.75, 2: 9.75, 4: 19.625, 8: 39.5}},
	{"A100-80", map[int]float64{1: 9.5, 2: 19.5, 4: 39.25, 8: 79}},
	{"A100-80", map[int]float64{1: 9.5, 2: 19.5, 4: 39.25, 8: 78.75}},
	{"H100", map[int]float64{1: 9.75, 2: 19.625, 4: 39.5, 8: 79.25}},
	{"H200", map[int]float64{1: 16, 2: 32.5, 4: 69.75, 8: 140}},
	{"H200", map[int]float64{1: 16, 2: 32.25, 4: 69.5, 8: 139.75}},
	{"B200", map[int]float64{1: 20.5, 2: 44.25, 4: 88.5, 8: 177}},
	{"B200", map[int]float64{1: 22, 2: 44.25, 4: 88.5, 8: 177}},
}

// asReported makes a card whose partitions have the memory that its driver reports, cut as the
// shipped list says.
func asReported(model string, gib map[int]float64) sharing.Device {
	d := sharingtest.Device(0, model, sharing.MIG)
	p := *d.MIG
	p.Profiles = slices.Clone(p.Profiles)
	for i := range p.Profiles {
		p.Profiles[i].Memory = sharing.MiBs(int64(gib[p.Profiles[i].Size] * 1024))
	}
	p.Geometries = config.DefaultDevice().Geometries(d.Model)
	d.MIG = &p
	return d
}

// Who asks for an amount that the shipped list has, or for the GiB in the name of a profile, gets a
// partition of that size: drivers report a little less than either.
func TestAnAmountOfTheShippedListGetsItsPartition(t *testing.T) {
	for _, card := range reported {
		listed := asReported(card.model, card.gib)
		if len(listed.MIG.Geometries) == 0 {
			t.Fatalf("%s: the shipped list has no geometries for it", listed.Model)
		}
		for _, d := range []sharing.Device{listed, sharingtest.BestFit(listed), sharingtest.Free(listed), sharingtest.BestFit(sharingtest.Free(listed))} {
			for _, g := range listed.MIG.Geometries {
				for _, e := range g.Entries {
					var compute, gib int64
					if _, err := fmt.Sscanf(e.Profile, "%dg.%dgb", &compute, &gib); err != nil {
						t.Fatal(err)
					}
					for _, mib := range []int64{int64(e.Memory / sharing.MiB), gib * 1024} {
						want := listed.MIG.Profiles[slices.IndexFunc(listed.MIG.Profiles, func(p sharing.Profile) bool { return p.Name == e.Profile })]
						views := []sharing.View{sharing.NewView(&d, nil, factory.New())}
						got, refused := place.Place(views, sharingtest.Pod("p", sharingtest.Ask("main", mib, 0)), factory.New(), policy.Fragmentation(nil))
						if refused.Refused() {
							t.Errorf("%s (1g: %v GiB), %v, %d groups: %d MiB are refused, want a %s", d.Model, card.gib[1], d.MIG.Policy, len(d.MIG.Geometries), mib, e.Profile)
							continue
						}
						s := got.Containers[0].Shares[0]
						if s.Partition.Size != want.Size || s.Memory != want.Memory {
							t.Errorf("%s (1g: %v GiB), %v, %d groups: %d MiB get a %s of %v, want a %s of %v",
								d.Model, card.gib[1], d.MIG.Policy, len(d.MIG.Geometries), mib, s.Partition.Profile, s.Memory, e.Profile, want.Memory)
						}
					}
				}
			}
		}
	}
}
