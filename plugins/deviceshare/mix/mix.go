// SPDX-License-Identifier: Apache-2.0

// Package mix learns what pods ask for from those that have arrived, and what free devices are
// worth to the next ones. Package worth has the arithmetic; this package decides when the mix is
// read again and when its weights are renewed.
package mix

import (
	"iter"
	"maps"
	"slices"
	"sync/atomic"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/worth"
)

// PlacementsPerRenewal is after how many placements the weights of what was learned are renewed.
const PlacementsPerRenewal = 200

// Mix is what was learned. It outlives sessions, and nothing is stored of it: at the start it is
// learned again from the pods that are there. The session goroutine writes it, never while workers
// run; workers read Model and Backends.
type Mix struct {
	plain    sharing.Backends
	arrivals worth.Arrivals
	model    *worth.Model
	backends sharing.Backends
	placed   int // since the weights were renewed
	begun    bool
	current  atomic.Pointer[worth.Mix]
}

// New returns a mix of which nothing is known. The backends are those of the scheduler.
func New(backends sharing.Backends) *Mix { return &Mix{plain: backends, backends: backends} }

// Cluster is what the weights depend on.
type Cluster struct {
	Nodes map[string]*nodes.Node
	// Hosts yields the nodes with devices as they are in the session, always in the same order:
	// sums of floats depend on it.
	Hosts iter.Seq[worth.Host]
}

// Begin learns from the pods of the first snapshot, so that a restart forgets little. Kind is false
// for a pod that cannot be read.
func (m *Mix) Begin(snapshot iter.Seq2[sharing.Owner, func() (worth.Kind, bool)]) {
	if m.begun {
		return
	}
	m.begun = true
	for owner, read := range snapshot {
		if m.arrivals.Full() {
			return
		}
		if kind, ok := read(); ok {
			m.arrivals.Note(owner, kind)
		}
	}
}

// Knows reports whether a pod was noted.
func (m *Mix) Knows(owner sharing.Owner) bool { return m.arrivals.Knows(owner) }

// Note notes a pod that Volcano is about to place, once.
func (m *Mix) Note(owner sharing.Owner, k worth.Kind) { m.arrivals.Note(owner, k) }

// NotePlacement notes that a pod was placed.
func (m *Mix) NotePlacement() { m.placed++ }

// Len is how many pods the mix is read from.
func (m *Mix) Len() int { return m.arrivals.Len() }

// Model is what was learned, nil if nothing was.
func (m *Mix) Model() *worth.Model { return m.model }

// Backends forecast what later pods lose, by what was learned.
func (m *Mix) Backends() sharing.Backends { return m.backends }

// Current is the pods that arrived last, nil before they were read. Safe for concurrent use.
func (m *Mix) Current() *worth.Mix { return m.current.Load() }

// IsDue reports whether the mix or its weights are to be renewed.
func (m *Mix) IsDue() bool { return m.arrivals.Due() || m.placed >= PlacementsPerRenewal }

// Renew reads the mix again if it has changed, and renews the weights.
func (m *Mix) Renew(c Cluster) {
	if !m.arrivals.Due() && m.renewWeights(c) {
		return
	}
	m.Read(c)
}

// Read learns from the pods that arrived.
func (m *Mix) Read(c Cluster) {
	now := m.arrivals.Mix()
	m.current.Store(&now)
	numbers, samples := countClasses(c.Nodes)
	m.model = worth.NewModel(now, numbers)
	m.backends = worth.Forecasting(m.plain, now, samples)
	m.renewWeights(c)
}

// renewWeights reports whether the classes of all devices are known.
func (m *Mix) renewWeights(c Cluster) bool {
	weighed, knowsAll := m.model.Weigh(c.Hosts)
	m.model, m.placed = weighed, 0
	return knowsAll
}

// countClasses counts the devices of the cluster by their classes, and returns one of each: the
// first in the order of nodes, since what is learned must not depend on the order of a map.
func countClasses(known map[string]*nodes.Node) (numbers map[worth.Class]int, samples map[worth.Class]*sharing.Device) {
	numbers, samples = map[worth.Class]int{}, map[worth.Class]*sharing.Device{}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		inventory := known[name].Inventory
		for i := 0; inventory != nil && i < len(inventory.Devices); i++ {
			d := &inventory.Devices[i]
			class := worth.ClassOf(d)
			if numbers[class]++; samples[class] == nil {
				samples[class] = d
			}
		}
	}
	return numbers, samples
}
