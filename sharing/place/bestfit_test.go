// SPDX-License-Identifier: Apache-2.0

package place_test

import (
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/worth"
)

// cut is an A100 that may be cut at will, by best fit.
func cut(index int) sharing.Device {
	return sharingtest.BestFit(sharingtest.Free(sharingtest.Device(index, "A100-80", sharing.MIG)))
}

func TestBestFitSparesEmptyDevicesForTheLargest(t *testing.T) {
	b := onNode(t, cut(0), cut(1), cut(2))
	half := first(b.place(sharingtest.Pod("half", sharingtest.Ask("main", 30000, 0))))
	for _, name := range []string{"a", "b", "c", "d"} {
		if got := first(b.place(sharingtest.Pod(name, sharingtest.Ask("main", 5000, 0)))); got.Device != half.Device {
			t.Errorf("%s is on %s, the half on %s", name, got.Device, half.Device)
		}
	}
	for _, name := range []string{"whole", "another"} {
		b.place(sharingtest.Pod(name, sharingtest.Ask("main", 80000, 0)))
	}
}

// Filling the fullest device would break the half that is left on it, although
// another device has broken halves already.
func TestBestFitDoesNotFillTheFullestDeviceAtAnyPrice(t *testing.T) {
	b := onNode(t, cut(0), cut(1))
	put := func(name string, device sharing.DeviceID, mib int64) {
		pod := sharingtest.Pod(name, sharingtest.Ask("main", mib, 0))
		pod.Selector.UseIDs = []sharing.DeviceID{device}
		b.place(pod)
	}
	put("half", "GPU-0", 30000)
	put("one", "GPU-1", 5000)
	if got := first(b.place(sharingtest.Pod("small", sharingtest.Ask("main", 5000, 0)))); got.Device != "GPU-1" {
		t.Errorf("the small one is on %s", got.Device)
	}
}

// A small request takes a large partition only if no device has a small one.
func TestALargerPartitionThanAskedForIsTheLastResort(t *testing.T) {
	twos := sharingtest.Device(0, "A100-80", sharing.MIG)
	twos.MIG = only(twos.MIG, []string{"group2"})
	ones := sharingtest.Device(1, "A100-80", sharing.MIG)
	for says, by := range map[string]func(sharing.Device) sharing.Device{
		"first-match": func(d sharing.Device) sharing.Device { return d }, "best-fit": sharingtest.BestFit,
	} {
		b := onNode(t, by(twos), by(ones))
		pod := sharingtest.Pod("fills", sharingtest.Ask("a", 15000, 0), sharingtest.Ask("b", 5000, 0))
		pod.Selector.UseIDs = []sharing.DeviceID{"GPU-0"}
		b.place(pod)
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
			if got := first(b.place(sharingtest.Pod(name, sharingtest.Ask("main", 5000, 0)))); got.Device != "GPU-1" || got.Partition.Size != 1 {
				t.Fatalf("%s: %s got %+v", says, name, got)
			}
		}
		if got := first(b.place(sharingtest.Pod("last", sharingtest.Ask("main", 5000, 0)))); got.Device != "GPU-0" || got.Partition.Size != 2 {
			t.Errorf("%s: the last got %+v", says, got)
		}
	}
}

// scoreOf is the score of a node for a pod.
func scoreOf(l *sharing.Ledger, pod *sharing.PodRequest, p policy.Policy) float64 {
	score, _ := place.Score(worth.Host{Views: l.Views()}, pod, worth.Amounts{}, factory.New(), p)
	return score
}

// The node whose device loses least is the one that has the device which Place
// would take if all were on one node.
func TestTheNodeScoreAgreesWithTheDeviceScore(t *testing.T) {
	binpack, _ := policy.Named("binpack")
	spread, _ := policy.Named("spread")
	full := onNode(t, cut(0))
	full.place(sharingtest.Pod("half", sharingtest.Ask("main", 30000, 0)))
	broken := onNode(t, cut(1))
	broken.place(sharingtest.Pod("one", sharingtest.Ask("main", 5000, 0)))
	empty := onNode(t, cut(2))
	backends := factory.New()
	score := func(b *bench, pod *sharing.PodRequest, p policy.Policy) float64 {
		s, _ := place.Score(worth.Host{Views: b.ledger.Views()}, pod, worth.Amounts{}, backends, p)
		return s
	}
	small, large := sharingtest.Pod("small", sharingtest.Ask("main", 5000, 0)), sharingtest.Pod("large", sharingtest.Ask("main", 30000, 0))
	if a, b, c := score(broken, small, binpack), score(full, small, binpack), score(empty, small, binpack); a <= b || b <= c {
		t.Errorf("a small one: %v where one is, %v where a half is, %v where nothing is", a, b, c)
	}
	if a, b := score(full, large, binpack), score(empty, large, binpack); a <= b {
		t.Errorf("a half: %v where a half is, %v where nothing is", a, b)
	}
	if a, b := score(full, small, spread), spread.Node(worth.Host{Views: full.ledger.Views()}, small, nil, worth.Amounts{}); a != b {
		t.Errorf("spread scores %v, the node %v", a, b)
	}
	plain := onNode(t, sharingtest.Device(0, "A30", sharing.HAMiCore))
	if a, b := score(plain, small, binpack), binpack.Node(worth.Host{Views: plain.ledger.Views()}, small, nil, worth.Amounts{}); a != b {
		t.Errorf("no partitions: %v, the policy says %v", a, b)
	}
	named := *small
	named.Modes = []sharing.Mode{sharing.MPS, sharing.MIG}
	if a, b := score(broken, &named, binpack), score(broken, small, binpack); a != b {
		t.Errorf("with its mode named %v, without %v", a, b)
	}
	for _, pod := range []*sharing.PodRequest{sharingtest.Pod("none"), sharingtest.Pod("huge", sharingtest.Ask("main", 90000, 0)),
		sharingtest.Pod("two", sharingtest.Ask("a", 5000, 0), sharingtest.Ask("b", 30000, 0))} {
		for _, b := range []*bench{full, broken, empty} {
			if s := score(b, pod, binpack); s < 0 || s > 100 {
				t.Errorf("%s: %v", pod.Owner, s)
			}
		}
	}
	if n := testing.AllocsPerRun(10, func() { score(full, small, binpack) }); n != 0 {
		t.Errorf("scoring allocates %v times", n)
	}
}

// What modes are worth changes neither which partition costs least nor what the
// score of a node says of it: the scheduler adds it to the score of nodes itself.
func TestWeightsOfModesLeaveTheScoreOfNodesByLossAsItIs(t *testing.T) {
	binpack, _ := policy.Named("binpack")
	broken, empty := onNode(t, cut(0)), onNode(t, cut(1))
	broken.place(sharingtest.Pod("one", sharingtest.Ask("main", 5000, 0)))
	pods := []*sharing.PodRequest{
		sharingtest.Pod("small", sharingtest.Ask("main", 5000, 0)),
		sharingtest.Pod("two", sharingtest.Ask("a", 5000, 0), sharingtest.Ask("b", 30000, 0)),
	}
	for says, w := range map[string]policy.Weights{
		"its mode": {sharing.MIG: 100}, "another mode": {sharing.MPS: 7}, "both": {sharing.MIG: 3, sharing.MPS: policy.MaxWeight},
	} {
		p := policy.WithModes(binpack, w)
		for _, pod := range pods {
			for _, b := range []*bench{broken, empty} {
				want := scoreOf(b.ledger, pod, binpack)
				if got := scoreOf(b.ledger, pod, p); got != want {
					t.Errorf("%s is worth something: %s scores %v, want %v", says, pod.Owner, got, want)
				}
			}
		}
	}
}

// Several containers of a pod share a device by best fit as different pods would.
func TestBestFitPlacesSeveralContainersOfAPod(t *testing.T) {
	b := onNode(t, cut(0), cut(1))
	p := b.place(sharingtest.Pod("pod", sharingtest.Ask("a", 30000, 0), sharingtest.Ask("b", 15000, 0), sharingtest.Ask("c", 5000, 0)))
	for i := range p.Containers {
		if got := p.Containers[i].Shares[0].Device; got != "GPU-0" {
			t.Errorf("%s is on %s", p.Containers[i].Container, got)
		}
	}
	two := b.place(sharingtest.Pod("two", sharingtest.Times(2, sharingtest.Ask("main", 5000, 0))))
	if len(two.Containers[0].Shares) != 2 {
		t.Errorf("%+v", two)
	}
}
