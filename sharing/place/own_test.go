// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
)

// collision is the first pair of partitions of one pod that need a common memory
// slice and are not one place, found by comparing all with all.
func collision(p *sharing.Placement) string {
	type at struct {
		container string
		share     sharing.Share
	}
	var all []at
	for _, c := range p.Containers {
		for _, s := range c.Shares {
			all = append(all, at{c.Container, s})
		}
	}
	for i, a := range all {
		for _, b := range all[:i] {
			x, y := a.share.Partition, b.share.Partition
			apart := a.share.Device != b.share.Device || x.Size == 0 || y.Size == 0 ||
				x.Start >= y.Start+y.Size || y.Start >= x.Start+x.Size
			if !apart && (x.Profile != y.Profile || x.Start != y.Start) {
				return fmt.Sprintf("%s has %s@%d and %s has %s@%d", b.container, y.Profile, y.Start, a.container, x.Profile, x.Start)
			}
		}
	}
	return ""
}

// ways are the ways in which a device may be cut.
func ways() map[string]func(sharing.Device) sharing.Device {
	with := func(policy sharing.PartitionPolicy, free bool) func(sharing.Device) sharing.Device {
		return func(d sharing.Device) sharing.Device {
			p := *d.MIG
			if p.Policy = policy; free {
				p.Geometries = nil
			}
			d.MIG = &p
			return d
		}
	}
	return map[string]func(sharing.Device) sharing.Device{
		"listed, first match": with(sharing.FirstMatch, false), "listed, best fit": with(sharing.BestFit, false),
		"free, first match": with(sharing.FirstMatch, true), "free, best fit": with(sharing.BestFit, true),
	}
}

// A start prepares every container of the pod that has the same slots, so a pod
// whose partitions overlap would destroy what it just made.
func TestWhatAPodHoldsNeverOverlapsInItself(t *testing.T) {
	for name, cut := range ways() {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(11, 11))
			placed, reused := 0, 0
			for i := range 400 {
				ledger := sharing.NewLedger(sharingtest.Node("n1",
					cut(sharingtest.Device(0, "A100-80", sharing.MIG)), cut(sharingtest.Device(1, "A30", sharing.MIG))), factory.New())
				for n := range 1 + r.IntN(3) {
					pod := sharingtest.Pod(fmt.Sprintf("p%d", n), kinds(r)...)
					p, refusals := place.Place(ledger.Views(), pod, factory.New(), policyOf(r))
					if refusals.Refused() {
						continue
					}
					if says := collision(&p); says != "" {
						t.Fatalf("pod %d: %s", i, says)
					}
					if err := ledger.Reserve(pod.Owner, p); err != nil {
						t.Fatalf("pod %d: %v", i, err)
					}
					if placed++; len(p.Containers) > 1 && p.Containers[0].Kind == sharing.Init && p.Containers[0].Shares[0] == p.Containers[1].Shares[0] {
						reused++
					}
				}
				if err := ledger.Check(); err != nil {
					t.Fatal(err)
				}
			}
			if placed < 300 || reused < 10 {
				t.Errorf("%d placed, in %d an init container's partition is used again: too few to mean much", placed, reused)
			}
		})
	}
}

// kinds are the requests of a pod of up to four containers of all kinds.
func kinds(r *rand.Rand) []sharing.Request {
	var all []sharing.Request
	for i := range 1 + r.IntN(4) {
		req := sharingtest.Ask(fmt.Sprintf("c%d", i), []int64{1000, 5000, 9000, 12000, 19000, 39000, 70000}[r.IntN(7)], 0)
		req.Kind = []sharing.ContainerKind{sharing.App, sharing.Init, sharing.Init, sharing.Sidecar}[r.IntN(4)]
		all = append(all, req)
	}
	slices.SortStableFunc(all, func(a, b sharing.Request) int {
		return cmp.Compare(b2i(a.Kind == sharing.App), b2i(b.Kind == sharing.App))
	})
	return all
}

func policyOf(r *rand.Rand) policy.Policy {
	p, _ := policy.Named(policy.Names()[r.IntN(2)])
	return p
}

// The whole card cannot be cut beside a smaller partition on it. A sidecar needs its
// own, so the pod needs two devices or says which container found none; an init
// container has the whole card too.
func TestAWholeCardBesideASmallerPartitionOfTheSamePod(t *testing.T) {
	device := func(i int) sharing.Device {
		d := sharingtest.Free(sharingtest.Device(i, "A100-80", sharing.MIG))
		d.MIG.Policy = sharing.BestFit
		return d
	}
	pack, _ := policy.Named("binpack")
	for name, c := range map[string]struct {
		kind    sharing.ContainerKind
		devices []sharing.Device
		want    string
	}{
		"an init container on one device":  {sharing.Init, []sharing.Device{device(0)}, "7g.80gb@0 of GPU-0, 7g.80gb@0 of GPU-0"},
		"an init container on two devices": {sharing.Init, []sharing.Device{device(0), device(1)}, "1g.10gb@0 of GPU-0, 7g.80gb@0 of GPU-1"},
		"a sidecar on one device":          {sharing.Sidecar, []sharing.Device{device(0)}, `0/1 devices fit container "train", 1 wanted: 1 without a free partition that is large enough (NoPartitionFits)`},
		"a sidecar on two devices":         {sharing.Sidecar, []sharing.Device{device(0), device(1)}, "1g.10gb@0 of GPU-0, 7g.80gb@0 of GPU-1"},
	} {
		t.Run(name, func(t *testing.T) {
			small, whole := sharingtest.As(c.kind, sharingtest.Ask("fetch", 1000, 0)), sharingtest.Ask("train", 70000, 0)
			views := sharing.NewLedger(sharingtest.Node("n1", c.devices...), factory.New()).Views()
			p, refusals := place.Place(views, sharingtest.Pod("p", small, whole), factory.New(), pack)
			got := refusals.String()
			if !refusals.Refused() {
				var parts []string
				for _, x := range p.Containers {
					s := x.Shares[0]
					parts = append(parts, fmt.Sprintf("%s@%d of %s", s.Partition.Profile, s.Partition.Start, s.Device))
				}
				got = strings.Join(parts, ", ")
			}
			if got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
