// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// sizes is how many sizes of partitions there are: 1, 2, 4 and 8 memory slices.
const sizes = 4

// bySize is a number for each size.
type bySize [sizes]float64

// chain is the states that a device can be in, and how partitions lead from one to another. The
// first state is the empty device.
type chain struct {
	slices int
	states []shape
	index  map[shape]int
	// given are the states after one more partition, by state and size: one for each place that
	// makes a difference.
	given [][sizes][]int
	// freed are the states after one partition less, by state: one for each partition.
	freed [][]int
}

// newChain returns the states of devices with 4 or 8 memory slices.
func newChain(slices int) *chain {
	c := &chain{slices: slices, index: map[shape]int{}}
	c.addState(shape{})
	for i := 0; i < len(c.states); i++ {
		s := c.states[i]
		for k := range sizes {
			for start := 0; start+1<<k <= slices; start += 1 << k {
				if !s.hasRoom(start, 1<<k) || slices == 8 && start == 7 {
					continue // the last slice has no compute of its own
				}
				n := c.addState(s.withPartition(start, 1<<k))
				// Two slices at the end go only to a 1g of double memory, which few ask for.
				if last := k == 1 && slices == 8 && start == 6; !last {
					c.addTransition(i, k, n)
				}
			}
		}
		for start, size := range s {
			if size != 0 {
				c.freed[i] = append(c.freed[i], c.addState(s.withPartition(start, 0)))
			}
		}
	}
	return c
}

// addState returns the number of a state.
func (c *chain) addState(s shape) int {
	// In a pair it makes no difference which slice a single one has.
	for i := 0; i < len(s); i += 2 {
		if s[i] == 0 && s[i+1] == 1 {
			s[i], s[i+1] = 1, 0
		}
	}
	n, known := c.index[s]
	if !known {
		n = len(c.states)
		c.index[s] = n
		c.states, c.given, c.freed = append(c.states, s), append(c.given, [sizes][]int{}), append(c.freed, nil)
	}
	return n
}

func (c *chain) addTransition(from, size, to int) {
	if !slices.Contains(c.given[from][size], to) {
		c.given[from][size] = append(c.given[from][size], to)
	}
}

// hasRoom reports whether nothing is on these slices.
func (s *shape) hasRoom(start, size int) bool {
	var taken uint64
	for i, n := range s {
		taken |= (1<<n - 1) << i
	}
	return taken>>start&(1<<size-1) == 0
}

// wholeState is the state in which the device is one partition.
func (c *chain) wholeState() int { return c.index[shape{uint8(c.slices)}] }

// bestNextState is the best state to which a partition of a size leads, -1 if there is no room.
func (c *chain) bestNextState(state, size int, value []float64) int {
	best := -1
	for _, n := range c.given[state][size] {
		if best < 0 || value[n] > value[best] {
			best = n
		}
	}
	return best
}

// arrivalRates returns how many partitions of each size are asked for while one stays, if they ask
// for load times the slices of the device.
func (c *chain) arrivalRates(weights bySize, load float64) (rates bySize, sum float64) {
	asked := 0.0
	for k, w := range weights {
		asked += w * float64(int(1)<<k)
	}
	for k, w := range weights {
		rates[k] = load * float64(c.slices) * w / asked
		sum += rates[k]
	}
	return rates, sum
}

// Value iteration ends when nothing changes by more than settled, a part of a memory slice, and
// after maxRounds at the latest.
const (
	settled   = 1e-5
	maxRounds = 2000
)

// singleDeviceValues is the value of each state of a device that others ask at random and that
// gives whatever fits: how many more memory slices it gives from then on than the empty one, by
// value iteration in steps in which at most one thing happens.
func (c *chain) singleDeviceValues(weights bySize, load float64) []float64 {
	rates, sum := c.arrivalRates(weights, load)
	total := sum + float64(c.slices)
	value, next := make([]float64, len(c.states)), make([]float64, len(c.states))
	for range maxRounds {
		change := 0.0
		for i := range c.states {
			here, left, gain := value[i], total, 0.0
			for k, rate := range rates {
				best := here
				if n := c.bestNextState(i, k, value); n >= 0 {
					best = float64(int(1)<<k) + value[n]
				}
				gain += float64(rate * best)
				left -= rate
			}
			for _, n := range c.freed[i] {
				gain += value[n]
				left--
			}
			next[i] = (gain + float64(left*here)) / total
		}
		empty := next[0]
		for i := range next {
			next[i] -= empty
			change = max(change, math.Abs(next[i]-value[i]))
		}
		value, next = next, value
		if change < settled {
			break
		}
	}
	return value
}

// The pool that pooledValues thinks of has this many devices for each that could be chosen, and is
// followed for so many mean stays of a partition. Results are the same from 10 to 30 and from 5
// to 30.
const (
	poolSize  = 10
	poolStays = 5
)

// pool is what pooled follows.
type pool struct {
	*chain
	rates bySize
	// part is how many of the devices are in each state, value what one more of them is worth.
	part, value []float64
	// order is the states that have room for a size, the best first; to is where it leads them.
	order [sizes][]int
	to    [sizes][]int
}

// pooledValues is the value of each state of one device among many, of which each request gets the
// one that loses least by it: how many more memory slices all of them give from then on than with
// an empty one in its place.
//
// The devices are taken for a fluid: the parts of them in each state follow from the rates, and
// the values from what a little more of a state does to the rest (the adjoint equations). Both are
// followed in steps of time, in which the choice follows the values.
func (c *chain) pooledValues(weights bySize, load float64) []float64 {
	p := &pool{chain: c, part: make([]float64, len(c.states)), value: make([]float64, len(c.states))}
	var sum float64
	p.rates, sum = c.arrivalRates(weights, load)
	p.part[0] = 1
	for i := range c.states {
		n := 0
		for _, size := range c.states[i] {
			n += int(size)
		}
		p.value[i] = -float64(n) / 2 // of partitions that are as good as any
	}
	step := 0.5 / (sum*poolSize + float64(c.slices))
	for n := range int(poolStays / step) {
		if n%ordered == 0 {
			p.sortStates()
		}
		p.advanceTime(step)
	}
	return p.value
}

// ordered is after how many steps the choice follows the values.
const ordered = 50

// sortStates brings the states into the order in which they are chosen.
func (p *pool) sortStates() {
	for k := range sizes {
		p.order[k], p.to[k] = p.order[k][:0], make([]int, len(p.states))
		for i := range p.states {
			if p.to[k][i] = p.bestNextState(i, k, p.value); p.to[k][i] >= 0 {
				p.order[k] = append(p.order[k], i)
			}
		}
		slices.SortFunc(p.order[k], func(i, j int) int {
			return cmp.Or(cmp.Compare(p.gainInState(k, j), p.gainInState(k, i)), i-j)
		})
	}
}

// gainInState is what it is worth to give a partition of a size to a device in a state.
func (p *pool) gainInState(size, state int) float64 {
	return float64(int(1)<<size) + p.value[p.to[size][state]] - p.value[state]
}

// advanceTime goes one step of time on.
func (p *pool) advanceTime(step float64) {
	parts, values := make([]float64, len(p.states)), make([]float64, len(p.states))
	for i := range p.states {
		for _, n := range p.freed[i] {
			parts[i] -= p.part[i]
			parts[n] += p.part[i]
			values[i] += p.value[n] - p.value[i]
		}
	}
	for k := range sizes {
		p.addRequestFlow(k, parts, values)
	}
	for i := range p.states {
		p.part[i] += float64(step * parts[i])
		p.value[i] += float64(step * (values[i] - values[0]))
	}
	for i, empty := 0, p.value[0]; i < len(p.value); i++ {
		p.value[i] -= empty
	}
}

// addRequestFlow adds what requests for a size change. The number of devices in a state is taken to
// be random (Poisson), so a state is chosen if there is one in it and none in any better state.
func (p *pool) addRequestFlow(k int, parts, values []float64) {
	order := p.order[k]
	none := make([]float64, len(order)) // in this state or a better one
	chosen := make([]float64, len(order))
	left := 1.0
	for j, i := range order {
		none[j] = left * math.Exp(-poolSize*p.part[i])
		chosen[j] = left - none[j]
		left = none[j]
		flow := p.rates[k] * chosen[j]
		parts[i] -= flow
		parts[p.to[k][i]] += flow
	}
	instead := 0.0 // what is gained where no better state is chosen
	for j := len(order) - 1; j >= 0; j-- {
		gain := p.gainInState(k, order[j])
		values[order[j]] += p.rates[k] * poolSize * (float64(none[j]*gain) - instead)
		instead += float64(chosen[j] * gain)
	}
}

// sizeOf is the index of a number of memory slices among the sizes; false if it is none of them.
func sizeOf(slices int) (int, bool) {
	return bits.TrailingZeros(uint(slices)), slices > 0 && slices < 1<<sizes && slices&(slices-1) == 0
}
