// SPDX-License-Identifier: Apache-2.0

package churn_test

import (
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/worth"
)

// fleet is nodes of best-fit devices without groups, where the policy fragmentation learns from the
// pods that arrive, as the scheduler's plugin does.
type fleet struct {
	*ledger // of the first node, for what all have in common
	nodes   []*ledger
	at      map[int]*ledger

	arrivals worth.Arrivals
	kinds    [4]worth.Kind
	valuer   policy.Valuer
	learned  sharing.Backends
}

func newFleet(tb testing.TB, nodes, devices int) *fleet {
	f := &fleet{at: map[int]*ledger{}, valuer: policy.Fragmentation(nil)}
	for range nodes {
		f.nodes = append(f.nodes, node(tb, devices, bestFitAnywhere))
	}
	f.ledger = f.nodes[0]
	f.learned = f.backends
	for kind, pod := range f.pods {
		f.kinds[kind] = worth.KindOf(pod, worth.Amounts{})
	}
	return f
}

func bestFitAnywhere(d sharing.Device) sharing.Device {
	return sharingtest.BestFit(sharingtest.Free(d))
}

func (f *fleet) take(owner, kind int) bool {
	f.arrivals.Note(id(owner), f.kinds[kind])
	if f.arrivals.Due() {
		f.learn()
	}
	best, most := -1, 0.0
	for i, n := range f.nodes {
		h := worth.Host{Views: n.ledger.Views()}
		points, fits := place.Points(h, f.pods[kind], worth.Amounts{}, f.learned, f.valuer)
		if fits && (best < 0 || points > most) {
			best, most = i, points
		}
	}
	if best < 0 {
		return false
	}
	n := f.nodes[best]
	n.policy, n.backends = f.valuer, f.learned
	if !n.take(owner, kind) {
		f.tb.Fatal("a node that fits takes nothing")
	}
	f.at[owner] = n
	return true
}

func (f *fleet) leave(owner, kind int) {
	f.at[owner].leave(owner, kind)
	delete(f.at, owner)
}

func (f *fleet) learn() {
	views := f.nodes[0].ledger.Views()
	c := worth.ClassOf(views[0].Device)
	mix := f.arrivals.Mix()
	m := worth.NewModel(mix, map[worth.Class]int{c: len(f.nodes) * len(views)})
	m, _ = m.Weigh(func(yield func(worth.Host) bool) {
		for _, n := range f.nodes {
			if !yield(worth.Host{Views: n.ledger.Views()}) {
				return
			}
		}
	})
	f.valuer = policy.Fragmentation(m)
	f.learned = worth.Forecasting(f.backends, mix, map[worth.Class]*sharing.Device{c: views[0].Device})
}

// What is learned gives more than first fit where the fixed table does not.
func TestWhatIsLearnedGivesMoreThanFirstFit(t *testing.T) {
	const devices, warm, length, seeds = 30, 5, 8, 3
	learned := column{"learned", func(tb testing.TB, n int) cluster { return newFleet(tb, 1, n) }}
	by := map[string]column{}
	for _, c := range columns() {
		by[c.name] = c
	}
	for _, m := range append([]mix{{.9, 0, 0, .1}}, mixes...) {
		got := run(t, learned, devices, m, 1, warm, length, seeds).slices()
		first := run(t, by["first fit, any layout"], devices, m, 1, warm, length, seeds).slices()
		fixed := run(t, by["best-fit, any layout"], devices, m, 1, warm, length, seeds).slices()
		t.Logf("%v: first fit %.2f %%, the fixed table %.2f %%, learned %.2f %%", m, first, fixed, got)
		if got <= first || got < fixed-0.5 { // so small a fleet gives one mix 0.3 less
			t.Errorf("%v: learned gives %.2f %%, first fit %.2f %%, the fixed table %.2f %%", m, got, first, fixed)
		}
	}
}
