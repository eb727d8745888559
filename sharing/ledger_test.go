// SPDX-License-Identifier: Apache-2.0

package sharing_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
)

// node is a node with a device of each kind.
func node() *sharing.Inventory {
	return sharingtest.Node("n1",
		sharingtest.Device(0, "A100-80", sharing.HAMiCore),
		sharingtest.Device(1, "A100-80", sharing.MIG),
		sharingtest.Free(sharingtest.Device(3, "A30", sharing.MIG)),
		sharingtest.Device(7, "T4", sharing.MPS))
}

// history is a ledger together with the plainest possible record of what was
// done to it.
type history struct {
	ledger  *sharing.Ledger
	held    map[sharing.Owner]sharing.Placement
	blocked map[sharing.Owner]bool
	facts   bool // something was recorded that may overlap
}

func begin() *history {
	return &history{sharing.NewLedger(node(), factory.New()), map[sharing.Owner]sharing.Placement{}, map[sharing.Owner]bool{}, false}
}

func (h *history) fork() *history {
	return &history{h.ledger.Fork(), maps.Clone(h.held), maps.Clone(h.blocked), h.facts}
}

// check compares the ledger with one made from scratch.
func (h *history) check(t *testing.T, did string) {
	t.Helper()
	fresh := sharing.NewLedger(h.ledger.Inventory(), factory.New())
	for o := range h.blocked {
		fresh.Block(o)
	}
	for _, o := range slices.Sorted(maps.Keys(h.held)) {
		fresh.Record(o, h.held[o])
	}
	l := h.ledger
	if !slices.Equal(l.Owners(), fresh.Owners()) || !slices.Equal(l.Blocking(), fresh.Blocking()) ||
		l.Len() != len(h.held)+len(h.blocked) {
		t.Fatalf("after %s: owners %v blocking %v, want %v %v", did, l.Owners(), l.Blocking(), fresh.Owners(), fresh.Blocking())
	}
	for o, want := range h.held {
		if got, ok := l.Placement(o); !ok || !reflect.DeepEqual(got, want) {
			t.Fatalf("after %s: %s holds %+v, want %+v", did, o, got, want)
		}
	}
	for i := range l.Views() {
		if got, want := face(&l.Views()[i]), face(&fresh.Views()[i]); got != want {
			t.Fatalf("after %s:\ngot  %s\nwant %s", did, got, want)
		}
	}
	if err := l.Check(); err != nil && !h.facts {
		t.Fatalf("after %s: %v", did, err)
	}
}

// face is all that can be seen of a view, owners sorted.
func face(v *sharing.View) string {
	text := fmt.Sprint(v.Device.ID, v.UsedMemory(), v.UsedCores(), v.FreeMemory(), v.FreeCores(), v.Sharers(),
		*v.Tally(), v.Empty(), v.Admit(&sharing.PodRequest{}))
	held := slices.Clone(v.Held())
	slices.SortStableFunc(held, func(a, b sharing.Held) int { return strings.Compare(string(a.Owner), string(b.Owner)) })
	return text + fmt.Sprint(held)
}

func somePod(r *rand.Rand, owner sharing.Owner) *sharing.PodRequest {
	pod := &sharing.PodRequest{Owner: owner}
	for i := range 1 + r.IntN(3) {
		req := sharingtest.Ask(fmt.Sprint("c", i), []int64{0, 500, 5000, 9000, 15000, 30000}[r.IntN(6)], []sharing.Percent{0, 10, 40, 100}[r.IntN(4)])
		if i == 0 {
			req.Kind = []sharing.ContainerKind{sharing.App, sharing.Init, sharing.Sidecar}[r.IntN(3)]
		}
		pod.Requests = append(pod.Requests, req)
	}
	if r.IntN(3) == 0 {
		pod.Neighbours = &sharing.Neighbours{Group: "job", Spread: true}
	}
	return pod
}

// After any sequence of operations the ledger equals one derived from scratch
// from what its owners hold.
func TestTheLedgerIsAlwaysWhatItsOwnersHold(t *testing.T) {
	spread, _ := policy.Named("spread")
	reserved := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		h := begin()
		for range 60 {
			owner := sharing.Owner(fmt.Sprint("pod-", r.IntN(20)))
			did := h.step(t, r, owner, spread)
			if strings.HasPrefix(did, "reserve") {
				reserved++
			}
			h.check(t, did)
		}
	}
	if reserved < 300 {
		t.Errorf("only %d reservations were made: the sequences say little", reserved)
	}
}

// step does something to the ledger and writes it down.
func (h *history) step(t *testing.T, r *rand.Rand, owner sharing.Owner, p policy.Policy) string {
	t.Helper()
	switch n := r.IntN(20); {
	case n < 10 && (len(h.blocked) == 0 || n < 3):
		placement, refusals := place.Place(h.ledger.Views(), somePod(r, owner), factory.New(), p)
		if refusals.Refused() {
			return "a refusal"
		}
		_, holds := h.held[owner]
		err := h.ledger.Reserve(owner, placement)
		if (err != nil) != (holds || h.blocked[owner]) {
			t.Fatalf("reserve %+v for %s: %v", placement, owner, err)
		}
		if err != nil {
			return "a second reservation"
		}
		h.held[owner] = placement
		if err := h.ledger.Reserve(owner, placement); err != nil {
			t.Fatalf("the same reservation again: %v", err)
		}
		return "reserve " + string(owner)
	case n < 15 || len(h.blocked) > 0:
		if blocked := slices.Sorted(maps.Keys(h.blocked)); len(blocked) > 0 {
			owner = blocked[0]
		}
		h.ledger.Release(owner)
		delete(h.held, owner)
		delete(h.blocked, owner)
		h.ledger.Release(owner)
		return "release " + string(owner)
	case n < 16:
		placement, refusals := place.Place(sharing.NewLedger(node(), factory.New()).Views(), somePod(r, owner), factory.New(), p)
		if refusals.Refused() {
			return "a refusal"
		}
		h.ledger.Record(owner, placement)
		h.held[owner], h.facts = placement, true
		delete(h.blocked, owner)
		return "record " + string(owner)
	case n < 17:
		h.ledger.Block(owner)
		delete(h.held, owner)
		h.blocked[owner] = true
		return "block " + string(owner)
	case n < 18:
		f := h.fork()
		for range 5 {
			f.check(t, "in a fork, "+f.step(t, r, sharing.Owner(fmt.Sprint("fork-", r.IntN(9))), p))
		}
		return "what happened in a fork"
	default:
		return h.refuseNonsense(t, owner)
	}
}

// refuseNonsense tries reservations that must change nothing.
func (h *history) refuseNonsense(t *testing.T, owner sharing.Owner) string {
	t.Helper()
	d := h.ledger.Inventory().Devices[0]
	share := sharing.Share{Device: d.ID, Mode: d.Mode, Memory: sharing.GiB}
	stranger, giant := share, share
	stranger.Device, giant.Memory = "GPU-none", d.Memory+1
	for says, p := range map[string]sharing.Placement{
		"an unknown device":           sharingtest.Give("main", share, stranger),
		"more than the device has":    sharingtest.Give("main", giant),
		"the same device twice":       sharingtest.Give("main", share, share),
		"slices the device lacks":     sharingtest.Give("main", sharing.Share{Device: "GPU-1", Mode: sharing.MIG, Partition: sharing.Partition{Start: 7, Size: 2, Geometry: "group1"}}),
		"a partition of an unsliced":  sharingtest.Give("main", sharing.Share{Device: "GPU-7", Mode: sharing.MPS, Partition: sharing.Partition{Size: 1, Geometry: "group1"}}),
		"the whole device and a part": {Containers: []sharing.ContainerShares{{Container: "a", Shares: []sharing.Share{{Device: d.ID, Mode: d.Mode, Whole: true}}}, {Container: "b", Shares: []sharing.Share{share}}}},
	} {
		if err := h.ledger.Reserve(owner, p); err == nil {
			t.Fatalf("%s was reserved", says)
		}
	}
	return "nonsense"
}

func TestReserveIsAllOrNothing(t *testing.T) {
	l := sharing.NewLedger(node(), factory.New())
	d := l.Inventory().Devices
	good := sharing.Share{Device: d[0].ID, Mode: d[0].Mode, Memory: sharing.GiB}
	bad := sharing.Share{Device: d[3].ID, Mode: d[3].Mode, Memory: d[3].Memory + 1}
	before := face(&l.Views()[0]) + face(&l.Views()[3])
	err := l.Reserve("pod", sharingtest.Give("main", good, bad))
	if err == nil || !strings.Contains(err.Error(), "pod") || !strings.Contains(err.Error(), "n1") || !strings.Contains(err.Error(), string(d[3].ID)) {
		t.Errorf("the error names owner, node and device: %v", err)
	}
	if after := face(&l.Views()[0]) + face(&l.Views()[3]); after != before || l.Len() != 0 {
		t.Errorf("before %s, after %s", before, after)
	}
}

// Pods on a node are facts. Two of them may claim the same partition; then both
// are kept, Check reports it, and what is left can still be given and reserved.
func TestFactsThatContradictEachOtherAreKeptAndReported(t *testing.T) {
	l := sharing.NewLedger(node(), factory.New())
	part := sharing.Share{Device: "GPU-1", Mode: sharing.MIG, Memory: sharing.GiB,
		Partition: sharing.Partition{Profile: "2g.20gb", Start: 0, Size: 2, Geometry: "group2"}}
	l.Record("one", sharingtest.Give("main", part))
	if err := l.Check(); err != nil {
		t.Fatal(err)
	}
	l.Record("two", sharingtest.Give("main", part))
	if err := l.Check(); err == nil || !strings.Contains(err.Error(), "one/main") || !strings.Contains(err.Error(), "two/main") {
		t.Errorf("%v", err)
	}
	part.Partition.Start, part.Partition.Position = 2, 1
	if err := l.Reserve("three", sharingtest.Give("main", part)); err != nil {
		t.Errorf("the next partition is free: %v", err)
	}
	l.Release("two")
	if err := l.Check(); err != nil {
		t.Errorf("one of the two is gone: %v", err)
	}
}

func TestCheckReportsWhatIsGivenBeyondTheDevice(t *testing.T) {
	share := sharing.Share{Device: "GPU-0", Mode: sharing.HAMiCore, Memory: 50 * sharing.GiB, Cores: 60}
	exclusive, whole := share, share
	exclusive.Memory, exclusive.Cores = sharing.GiB, 100
	whole.Memory, whole.Cores, whole.Whole = sharing.GiB, 0, true
	small := sharing.Share{Device: "GPU-0", Mode: sharing.HAMiCore, Memory: sharing.GiB}
	cases := map[string]struct {
		first, second sharing.Share
		says          string
	}{
		"memory":            {share, share, "memory given"},
		"compute":           {small, sharing.Share{Device: "GPU-0", Mode: sharing.HAMiCore, Memory: 1, Cores: 101}, "compute given"},
		"exclusive compute": {exclusive, small, "only one may"},
		"small beside it":   {small, exclusive, "only one may"},
		"the whole device":  {small, whole, "only one may"},
		"unknown device":    {small, sharing.Share{Device: "GPU-9"}, "unknown device GPU-9"},
	}
	for says, c := range cases {
		t.Run(says, func(t *testing.T) {
			l := sharing.NewLedger(node(), factory.New())
			l.Record("one", sharingtest.Give("main", c.first))
			l.Record("two", sharingtest.Give("main", c.second))
			if err := l.Check(); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v: want %q", err, c.says)
			}
		})
	}
	few := sharingtest.Device(0, "T4", sharing.MPS)
	few.MaxShares = 1
	l := sharing.NewLedger(sharingtest.Node("n1", few), factory.New())
	small.Mode = sharing.MPS
	l.Record("one", sharingtest.Give("main", small))
	l.Record("two", sharingtest.Give("main", small))
	if err := l.Check(); err == nil || !strings.Contains(err.Error(), "2 of 1 shares") {
		t.Errorf("%v", err)
	}
}

// What others made of a device is no reason against a pod that does not make it worse.
func TestAPodIsNotBlamedForWhatOthersHold(t *testing.T) {
	divided := func(memory sharing.Bytes, cores sharing.Percent) sharing.Share {
		return sharing.Share{Device: "GPU-0", Mode: sharing.HAMiCore, Memory: memory, Cores: cores}
	}
	partition := func(start, size int) sharing.Share {
		return sharing.Share{Device: "GPU-1", Mode: sharing.MIG, Memory: sharing.GiB, Partition: sharing.Partition{Profile: "p", Start: start, Size: size}}
	}
	for says, c := range map[string]struct {
		there []sharing.Share
		next  sharing.Share
		error string // "" if it can be reserved
	}{
		"too much memory is given, and it wants none":    {[]sharing.Share{divided(60*sharing.GiB, 0), divided(60*sharing.GiB, 0)}, divided(0, 5), ""},
		"too much memory is given, and it wants more":    {[]sharing.Share{divided(60*sharing.GiB, 0), divided(60*sharing.GiB, 0)}, divided(1, 5), "memory given"},
		"too much compute is given, and it wants none":   {[]sharing.Share{divided(1, 60), divided(1, 60)}, divided(1, 0), ""},
		"too much compute is given, and it wants more":   {[]sharing.Share{divided(1, 60), divided(1, 60)}, divided(1, 1), "compute given"},
		"another one lies beyond the device":             {[]sharing.Share{partition(7, 2)}, partition(0, 1), ""},
		"it lies beyond the device itself":               {[]sharing.Share{partition(0, 1)}, partition(7, 2), "pod/main holds slices 7 to 8, which it does not have"},
		"two others overlap":                             {[]sharing.Share{partition(4, 2), partition(5, 1)}, partition(0, 1), ""},
		"it overlaps with one that overlaps with others": {[]sharing.Share{partition(4, 2), partition(5, 1)}, partition(4, 1), "hold what only one may"},
	} {
		l := sharing.NewLedger(node(), factory.New())
		for i, s := range c.there {
			l.Record(sharing.Owner(fmt.Sprint("other-", i)), sharingtest.Give("main", s))
		}
		err := l.Reserve("pod", sharingtest.Give("main", c.next))
		if (err == nil) != (c.error == "") || err != nil && !strings.Contains(err.Error(), c.error) {
			t.Errorf("%s: %v, want %q", says, err, c.error)
		}
	}
	few := sharingtest.Device(0, "T4", sharing.HAMiCore)
	few.MaxShares = 1
	l := sharing.NewLedger(sharingtest.Node("n1", few), factory.New())
	l.Record("one", sharingtest.Give("main", divided(1, 0)))
	l.Record("two", sharingtest.Give("main", divided(1, 0)))
	if err := l.Reserve("pod", sharingtest.Give("main", divided(1, 0))); err == nil || !strings.Contains(err.Error(), "3 of 1 shares") {
		t.Errorf("too many shares are given, and it wants one more: %v", err)
	}
}

// A fork and its origin may grow the same device from the same shares: neither
// must write into what the other holds.
func TestForksGrowApart(t *testing.T) {
	l := sharing.NewLedger(node(), factory.New())
	share := sharing.Share{Device: "GPU-0", Mode: sharing.HAMiCore, Memory: sharing.GiB}
	for n := range 8 {
		owner := sharing.Owner(fmt.Sprint("pod-", n))
		if err := l.Reserve(owner, sharingtest.Give("main", share)); err != nil {
			t.Fatal(err)
		}
		f := l.Fork()
		if n > 2 {
			f.Release("pod-1")
		}
		g := f.Fork()
		for name, x := range map[sharing.Owner]*sharing.Ledger{"f": f, "g": g} {
			if err := x.Reserve(name, sharingtest.Give("main", share)); err != nil {
				t.Fatal(err)
			}
		}
		for name, x := range map[string]*sharing.Ledger{"the origin": l, "the fork": f, "its fork": g} {
			if err := x.Check(); err != nil {
				t.Errorf("%s after %d pods: %v", name, n+1, err)
			}
		}
	}
}
