// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"math"
	"math/bits"
)

// losses is how many memory slices fewer than an empty device a device will give because of what is
// on it, in thousandths: by the states of its lower and its upper four slices, and for a device of
// 8 that is one partition. A device of 4 slices has lower ones only.
type losses struct {
	halves [halfStates][halfStates]int16
	whole  int16
}

func (l *losses) shapeLoss(s *shape) int64 {
	if s[0] == 8 {
		return int64(l.whole)
	}
	return int64(l.halves[s.halfState(0)][s.halfState(4)])
}

// sizes is how many sizes of partitions there are: 1, 2, 4 and 8 memory slices.
const sizes = 4

// bySize is a number for each size.
type bySize [sizes]float64

// sizeOf is the index of a number of memory slices among the sizes; false if it is none of them.
func sizeOf(slices int) (int, bool) {
	return bits.TrailingZeros(uint(slices)), slices > 0 && slices < 1<<sizes && slices&(slices-1) == 0
}

// eventsAhead is how many requests and departures are looked ahead. Results are the same within a
// fifth of a percent from 20 to 100.
const eventsAhead = 30

// device is a device on its own. Requests of each size come at random and get the best place if
// there is one, and partitions leave at random: three of one slice stand longer in the way of a 7g
// than one of three. Together the requests ask for all of its slices.
type device struct {
	slices int
	// rates is how many requests of each size come during the mean stay of a partition, events how
	// many events of any kind if all slices were single partitions.
	rates  bySize
	events float64
	// more are the states of the lower and of the upper four slices with one more partition, by
	// state and size; less are the states with one less, one for each partition.
	more [2][halfStates][sizes][]int
	less [halfStates][]int
}

func newDevice(slices int, weights bySize) *device {
	d := &device{slices: slices, events: float64(slices)}
	asked := 0.0
	for k, w := range weights {
		asked += w * float64(int(1)<<k)
	}
	for k, w := range weights {
		d.rates[k] = float64(slices) * w / asked
		d.events += d.rates[k]
	}
	for half := range halfStates {
		for k := range sizes {
			d.more[0][half][k] = statesWith(half, 1<<k, false)
			if slices == 8 {
				d.more[1][half][k] = statesWith(half, 1<<k, true)
			}
		}
		d.less[half] = statesWithout(half)
	}
	return d
}

// statesWith returns the states of four slices with one more partition of a size; none if there is
// no room. The last of 8 slices has no compute of its own: it starts nothing, and the last two hold
// no partition that pods ask for but one single.
func statesWith(half, size int, upper bool) (out []int) {
	if half == 0 && size == 4 {
		return []int{fullHalf}
	}
	if half == fullHalf || size >= 4 {
		return nil
	}
	first, second := half/4, half%4
	if pair, ok := pairWith(first, size); ok {
		out = append(out, 4*pair+second)
	}
	if pair, ok := pairWith(second, size); ok && (!upper || pair == 1) {
		out = append(out, 4*first+pair)
	}
	return out
}

// pairWith is the state of two slices with one more partition of 1 or 2; false if there is no room.
func pairWith(pair, size int) (int, bool) {
	switch {
	case size == 1 && pair < 2:
		return pair + 1, true
	case size == 2 && pair == 0:
		return doublePair, true
	}
	return 0, false
}

// statesWithout returns the states of four slices after each of their partitions has left.
func statesWithout(half int) (out []int) {
	if half == fullHalf {
		return []int{0}
	}
	for _, weight := range []int{4, 1} {
		switch pair := half / weight % 4; pair {
		case doublePair:
			out = append(out, half-doublePair*weight)
		default:
			for range pair {
				out = append(out, half-weight)
			}
		}
	}
	return out
}

// outlook is how many memory slices the device will give from each state on, as losses has them.
type outlook struct {
	halves [halfStates][halfStates]float64
	whole  float64
}

// lossesFor looks ahead what a device gives if sizes are asked for by these weights.
func lossesFor(slices int, weights bySize) *losses {
	d := newDevice(slices, weights)
	uppers := 1
	if slices == 8 {
		uppers = halfStates
	}
	var now outlook
	for range eventsAhead {
		var before outlook
		for low := range halfStates {
			for high := range uppers {
				before.halves[low][high] = d.lookAhead(&now, low, high)
			}
		}
		before.whole = now.whole + (now.halves[0][0]-now.whole)/d.events
		now = before
	}
	empty := now.halves[0][0]
	l := &losses{whole: toLoss(empty - now.whole)}
	for low := range halfStates {
		for high := range uppers {
			l.halves[low][high] = toLoss(empty - now.halves[low][high])
		}
	}
	return l
}

func toLoss(slices float64) int16 { return int16(math.Round(min(max(0, 1000*slices), math.MaxInt16))) }

// lookAhead returns how many slices the device gives from a state on, if now says so of the states
// after the next event. Products are rounded one by one, so that every machine finds the same.
func (d *device) lookAhead(now *outlook, low, high int) float64 {
	here := now.halves[low][high]
	sum := float64(d.events * here)
	for k, rate := range d.rates {
		if best, fits := d.bestPlace(now, low, high, k); fits {
			sum += float64(rate * (float64(int(1)<<k) + best - here))
		}
	}
	for _, l := range d.less[low] {
		sum += now.halves[l][high] - here
	}
	for _, h := range d.less[high] {
		sum += now.halves[low][h] - here
	}
	return sum / d.events
}

// bestPlace returns the outlook with one more partition of a size where it is best; false if there
// is no room.
func (d *device) bestPlace(now *outlook, low, high, k int) (best float64, fits bool) {
	if 1<<k == 8 && low == 0 && high == 0 {
		return now.whole, d.slices == 8
	}
	best = math.Inf(-1)
	for _, l := range d.more[0][low][k] {
		best = max(best, now.halves[l][high])
	}
	for _, h := range d.more[1][high][k] {
		best = max(best, now.halves[low][h])
	}
	return best, !math.IsInf(best, -1)
}
