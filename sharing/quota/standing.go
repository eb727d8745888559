// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"math"
	"math/bits"
	"slices"
)

// Standing is what a queue and those below it have of some amounts, and what they should have.
// Amounts are told apart by position: those of devices in real amounts, and CPU, memory and others.
type Standing struct {
	// Has is what its pods take that stay or arrive.
	Has []int64
	// Deserved is up to where the queue may take from others, and from where others may take from
	// it; Unset where it was given no number.
	Deserved []int64
	// Guaranteed is what nobody takes from it.
	Guaranteed []int64
}

// Unset is what a queue deserves of an amount for which it was given no number.
const Unset = -1

// Standings are those of all queues.
type Standings struct {
	// Of has the standing of each queue by its name.
	Of map[string]*Standing
	// Chains has each queue and those above it.
	Chains map[string][]string
}

// Terms are those on which other queues give pods up for a queue that wants some amounts.
//
// Two queues are compared below the lowest queue that is above both: the one that wants must not
// have more than it deserves afterwards, on any level below that. The one that gives must have more
// than it deserves of something that is wanted. It is not left with less than it deserves, unless
// it still has a larger part of it than the queue that wants had before: so nobody takes anything
// back, and the largest deficit shrinks.
type Terms struct {
	// Wants is what the queue wants.
	Wants     []int64
	standings *Standings
	chain     []string
	// beyond is the first level that does not deserve that, and of what; -1 if all do.
	beyond, of int
}

// Level is what a queue may give up, or one above it.
type Level struct {
	Queue string
	// Most is how much of each amount may leave it.
	Most []int64
	// Above says of which amounts it has more than it deserves. IsBound is false for a queue that
	// was given no number for anything that is wanted: it gives up whatever it has.
	Above   []bool
	IsBound bool
}

// TermsFor returns the terms for a queue.
func (s *Standings) TermsFor(queue string, wants []int64) *Terms {
	t := &Terms{standings: s, chain: s.Chains[queue], Wants: wants, beyond: -1}
	for i, name := range t.chain {
		if of := s.Of[name].findBeyond(wants); of >= 0 {
			t.beyond, t.of = i, of
			break
		}
	}
	return t
}

// Beyond returns the queue that would have more than it deserves, its own or the nearest one above
// it, and of which amount; false if none would.
func (t *Terms) Beyond() (queue string, of int, beyond bool) {
	if t.beyond < 0 {
		return "", 0, false
	}
	return t.chain[t.beyond], t.of, true
}

// GivenBy returns what a queue, and those above it, may give up, from the queue itself upwards;
// false if it gives nothing.
func (t *Terms) GivenBy(queue string) (levels []Level, gives bool) {
	chain := t.standings.Chains[queue]
	above := slices.IndexFunc(t.chain, func(name string) bool { return slices.Contains(chain, name) })
	if isBeyond := t.beyond >= 0 && t.beyond < above; above <= 0 || chain[0] == t.chain[above] || isBeyond {
		return nil, false
	}
	has, deserved := t.standings.Of[t.chain[above-1]].smallestPart(t.Wants)
	for _, name := range chain[:slices.Index(chain, t.chain[above])] {
		l := t.standings.Of[name].levelFor(t.Wants, has, deserved)
		if l.IsBound && !slices.Contains(l.Above, true) {
			return nil, false
		}
		l.Queue = name
		levels = append(levels, l)
	}
	return levels, true
}

// GivesUp reports whether a level gives up a pod that takes some amounts, as far as it is about
// what the pod takes: something of which the queue has more than it deserves.
func (l *Level) GivesUp(takes []int64) bool {
	for r, n := range takes {
		if n > 0 && l.Above[r] {
			return true
		}
	}
	return !l.IsBound
}

// Excess is how many times what it deserves a queue has, of the wanted amount of which it has the
// most.
func (t *Terms) Excess(queue string) (times float64) {
	s := t.standings.Of[queue]
	for r, n := range t.Wants {
		switch {
		case n <= 0 || s.Has[r] <= 0:
		case s.Deserved[r] <= 0:
			return math.Inf(1)
		default:
			times = max(times, float64(s.Has[r])/float64(s.Deserved[r]))
		}
	}
	return times
}

// findBeyond returns an amount of which the queue would have more than it deserves, -1 if of none.
// It deserves what it is guaranteed.
func (s *Standing) findBeyond(wants []int64) int {
	for r, n := range wants {
		if n > 0 && s.Deserved[r] != Unset && s.Has[r]+n > max(s.Deserved[r], s.Guaranteed[r]) {
			return r
		}
	}
	return -1
}

// smallestPart returns what the queue has and deserves of the wanted amount of which it has the
// smallest part, 1 and 1 if it deserves nothing in particular.
func (s *Standing) smallestPart(wants []int64) (has, deserved int64) {
	has, deserved = 1, 1
	for r, n := range wants {
		if n > 0 && s.Deserved[r] > 0 && isSmallerPart(s.Has[r], s.Deserved[r], has, deserved) {
			has, deserved = s.Has[r], s.Deserved[r]
		}
	}
	return max(has, 0), deserved
}

// isSmallerPart reports whether a/b is less than c/d.
func isSmallerPart(a, b, c, d int64) bool {
	hi, lo := bits.Mul64(uint64(max(a, 0)), uint64(d))
	hi2, lo2 := bits.Mul64(uint64(max(c, 0)), uint64(b))
	return hi < hi2 || hi == hi2 && lo < lo2
}

// levelFor returns what the queue may give up to one that has so much of what it deserves.
func (s *Standing) levelFor(wants []int64, has, deserved int64) Level {
	l := Level{Most: make([]int64, len(wants)), Above: make([]bool, len(wants))}
	for r := range wants {
		l.Most[r] = math.MaxInt64
		if wants[r] > 0 && s.Deserved[r] != Unset {
			l.IsBound = true
			if l.Above[r] = s.Has[r] > s.Deserved[r]; l.Above[r] {
				l.Most[r] = max(s.Has[r]-s.Deserved[r], s.Has[r]-partOf(s.Deserved[r], has, deserved)-1)
			}
		}
		if s.Guaranteed[r] > 0 {
			l.Most[r] = min(l.Most[r], max(s.Has[r]-s.Guaranteed[r], 0))
		}
	}
	return l
}

// partOf returns n*a/b, rounded down, for a of at most b.
func partOf(n, a, b int64) int64 {
	if a >= b {
		return n
	}
	hi, lo := bits.Mul64(uint64(n), uint64(a))
	q, _ := bits.Div64(hi, lo, uint64(b))
	return int64(q)
}
