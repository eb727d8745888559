// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"math/rand/v2"
	"testing"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/wire"
)

// oneOffer offers every device alike.
type oneOffer node.Offer

func (o oneOffer) Offer(*node.Facts) node.Offer { return node.Offer(o) }

// start takes a pod of one container all the way, over both texts that travel: what the node
// publishes, where the pod is placed, with what its container may start. It is false if the pod
// does not fit.
func start(t *testing.T, s node.State, req sharing.Request) (sharing.Share, bool) {
	t.Helper()
	text, err := wire.EncodeInventory(s.Inventory())
	if err != nil {
		t.Fatal(err)
	}
	inv, err := wire.DecodeInventory(text)
	if err != nil {
		t.Fatal(err)
	}
	p, _ := policy.Named("binpack")
	placement, refused := place.Place(sharing.NewLedger(&inv, factory.New()).Views(), sharingtest.Pod("p", req), factory.New(), p)
	if refused.Refused() {
		return sharing.Share{}, false
	}
	a := node.Ask{Owner: "p", Container: req.Container, Slots: 1, Placement: placement, Requests: []sharing.Request{req}}
	claim, no := node.Admit(s, a, false, nil)
	if no != nil {
		t.Fatalf("%+v of %+v: %s", req, inv.Devices, no.Detail)
	}
	return claim.Devices[0].Share, true
}

// offering is a node with one device of so many MiB.
func offering(mib int64, mode sharing.Mode, memory, cores float64) node.State {
	s := node.New(node.Config{Node: "n1", Backends: factory.New()})
	s = node.Reduce(s, node.Configured{Settings: node.Settings{Offers: oneOffer{Mode: mode, MemoryScaling: memory, CoreScaling: cores, MaxShares: 10}}})
	f := card("GPU-0", 0, "T4", "1")
	f.Memory = sharing.Bytes(mib) << 20
	return node.Reduce(s, node.Scanned{Devices: []node.Facts{f}})
}

// A device of 80 GiB of which the administrator offers 40: who asks for all of it gets 40.
func TestWhoAsksForAWholeDeviceIsHeldToWhatIsOffered(t *testing.T) {
	for _, mode := range []sharing.Mode{sharing.HAMiCore, sharing.MPS, sharing.TimeSlicing} {
		for says, req := range map[string]sharing.Request{
			"no amount":   sharingtest.Ask("main", 0, 0),
			"100 percent": {Container: "main", Count: 1, Memory: sharing.PercentMemory(100)},
			"40 GiB":      sharingtest.Ask("main", 40*1024, 0),
			"and cores":   sharingtest.Ask("main", 0, 100),
		} {
			req.User = sharing.User{ID: 1000, Known: true}
			s, _ := start(t, offering(80*1024, mode, 0.5, 1), req)
			if s.Whole || s.Memory != 40*sharing.GiB {
				t.Errorf("%s, %s: %+v, want a share of 40GiB with limits", mode, says, s)
			}
		}
	}
}

// Only a container that gets all that is physically there goes without limits, whatever is offered
// and asked for.
func TestOnlyAllThatIsThereGoesWithoutLimits(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 54))
	whole, part := 0, 0
	for range 20000 {
		there := 1024 + r.Int64N(200*1024)
		memory := []float64{1, 1, 0.5, 0.25, 2, 0.01 + 3*r.Float64()}[r.IntN(6)]
		cores := []float64{1, 1, 1, 0.5, 2, 0.001 + 2*r.Float64()}[r.IntN(6)]
		mode := []sharing.Mode{sharing.HAMiCore, sharing.MPS, sharing.TimeSlicing}[r.IntN(3)]
		s := offering(there, mode, memory, cores)
		d := s.Inventory().Devices[0]
		offered, compute := int64(d.Memory>>20), int(d.Cores)
		mib := []int64{0, 0, offered, there, 1 + r.Int64N(offered)}[r.IntN(5)]
		req := sharingtest.Ask("main", mib, []sharing.Percent{0, 0, 100, 30}[r.IntN(4)])
		if r.IntN(8) == 0 {
			req.Memory, mib = sharing.PercentMemory(100), 0
		}
		req.User = sharing.User{ID: 1000, Known: true}
		got, fits := start(t, s, req)
		if !fits {
			continue
		}
		gives := max(mib, 0)
		if mib == 0 {
			gives = offered
		}
		keepsBack := offered < there || compute < 100
		all := !keepsBack && (mib == 0 || mib == there && offered == there) && (req.Cores == 0 || req.Cores == 100)
		computes := int(req.Cores)
		if keepsBack && mib == 0 && req.Cores == 0 {
			computes = min(100, compute)
		}
		if got.Whole != all || int64(got.Memory>>20) != gives || int(got.Cores) != computes {
			t.Fatalf("%s: %d MiB are there, %d and %d%% offered, %d and %d%% asked for: %+v, want whole %v, %d MiB, %d%%",
				mode, there, offered, compute, mib, req.Cores, got, all, gives, computes)
		}
		if all {
			whole++
		} else {
			part++
		}
	}
	if whole < 1000 || part < 1000 {
		t.Errorf("%d whole devices and %d parts: this shows little", whole, part)
	}
}

// A placement from a scheduler that does not know what is there is held to its amount all the same.
func TestAWholeDeviceOfAnOlderSchedulerIsHeldToItsAmount(t *testing.T) {
	s := offering(80*1024, sharing.HAMiCore, 0.5, 1)
	share := sharing.Share{Device: "GPU-0", Mode: sharing.HAMiCore, Memory: 40 * sharing.GiB, Whole: true}
	a := node.Ask{Owner: "p", Container: "main", Slots: 1, Placement: sharingtest.Give("main", share), Requests: []sharing.Request{sharingtest.Ask("main", 0, 0)}}
	for _, begun := range []bool{false, true} {
		claim, no := node.Admit(s, a, begun, nil)
		if no != nil {
			t.Fatal(no.Detail)
		}
		if got := claim.Devices[0].Share; got.Whole || got.Memory != 40*sharing.GiB {
			t.Errorf("begun %v: %+v, want limits", begun, got)
		}
	}
}
