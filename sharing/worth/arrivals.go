// SPDX-License-Identifier: Apache-2.0

package worth

import (
	"slices"

	"deviceshare/sharing"
)

const (
	// maxRemembered is how many pods an Arrivals remembers: the latest ones.
	maxRemembered = 20_000
	// firstMix is how many pods must have arrived before anything is learned from them.
	firstMix = 50
	// fewest and growth are how many pods must have arrived since the last time: as many
	// as fewest, and the growth-th part of all.
	fewest, growth = 100, 4
)

// Arrivals remembers the pods that arrived last, each once. The zero value remembers none. It is
// for one goroutine.
type Arrivals struct {
	counts map[Kind]int
	seen   map[sharing.Owner]struct{}
	ring   []arrival
	oldest int
	fresh  int // since the last Mix
	mixed  bool
}

type arrival struct {
	owner sharing.Owner
	kind  Kind
}

// Note remembers a pod; false if it is remembered already.
func (a *Arrivals) Note(owner sharing.Owner, k Kind) bool {
	if _, known := a.seen[owner]; known {
		return false
	}
	if a.seen == nil {
		a.seen, a.counts = map[sharing.Owner]struct{}{}, map[Kind]int{}
	}
	a.seen[owner] = struct{}{}
	a.counts[k]++
	a.fresh++
	if len(a.ring) < maxRemembered {
		a.ring = append(a.ring, arrival{owner, k})
		return true
	}
	old := &a.ring[a.oldest]
	delete(a.seen, old.owner)
	if a.counts[old.kind]--; a.counts[old.kind] == 0 {
		delete(a.counts, old.kind)
	}
	*old = arrival{owner, k}
	a.oldest = (a.oldest + 1) % maxRemembered
	return true
}

// Knows reports whether a pod is remembered.
func (a *Arrivals) Knows(owner sharing.Owner) bool {
	_, known := a.seen[owner]
	return known
}

// Full reports whether the next pod that is noted replaces the oldest.
func (a *Arrivals) Full() bool { return len(a.ring) == maxRemembered }

// Len is the number of pods that are remembered.
func (a *Arrivals) Len() int { return len(a.ring) }

// Due reports whether so many pods have arrived since the last Mix that it should be read
// again.
func (a *Arrivals) Due() bool {
	if !a.mixed {
		return len(a.ring) >= firstMix
	}
	return a.fresh >= max(fewest, len(a.ring)/growth)
}

// Mix returns how often each kind arrived, the most frequent first.
func (a *Arrivals) Mix() Mix {
	m := make(Mix, 0, len(a.counts))
	for k, n := range a.counts {
		m = append(m, Part{Kind: k, Count: n})
	}
	slices.SortFunc(m, func(p, q Part) int {
		if p.Count != q.Count {
			return q.Count - p.Count
		}
		return p.Kind.compareTo(&q.Kind)
	})
	a.fresh, a.mixed = 0, true
	return m
}

// Mix is kinds of pods with their numbers, the most frequent first.
type Mix []Part

// Part is how many pods of a kind arrived.
type Part struct {
	Kind  Kind
	Count int
}

// maxKinds bounds how many kinds are weighed for each node.
const maxKinds = 256

// frequentKinds returns the most frequent kinds, which make up 95 of 100 pods.
func (m Mix) frequentKinds() Mix {
	total, sum := 0, 0
	for i := range m {
		total += m[i].Count
	}
	for i := range m {
		if sum*wholeDevice >= total*95 || i == maxKinds {
			return m[:i]
		}
		sum += m[i].Count
	}
	return m
}

// demandBySize returns how many shares of each size of a class pods ask for. Models and modes that
// they accept do not matter: every class is cut as if it served all.
func (m Mix) demandBySize(c *Class) *bySize {
	d := new(bySize)
	for i := range m {
		k := &m[i].Kind
		if z := k.sizeByAmounts(c); k.Devices > 0 && z > 0 && z < wholeDevice {
			d[z] += float64(m[i].Count * k.Devices)
		}
	}
	return d
}
