// SPDX-License-Identifier: Apache-2.0

package churn_test

// starts of 1g, 2g, 3g and 7g on a device of 8 memory slices.
var starts = [4][]int{{0, 1, 2, 3, 4, 5, 6}, {0, 2, 4}, {0, 4}, {0}}

func span(kind, start int) uint8 { return uint8((1<<sizes[kind] - 1) << start) }

// firstFit gives the first device, and the first place on it, that is free.
type firstFit struct {
	taken []uint8
	at    map[int][2]int // device and start by owner
}

func newFirstFit(devices int) *firstFit {
	return &firstFit{make([]uint8, devices), map[int][2]int{}}
}

func (c *firstFit) take(owner, kind int) bool {
	for d := range c.taken {
		for _, start := range starts[kind] {
			if c.taken[d]&span(kind, start) == 0 {
				c.taken[d] |= span(kind, start)
				c.at[owner] = [2]int{d, start}
				return true
			}
		}
	}
	return false
}

func (c *firstFit) leave(owner, kind int) {
	at := c.at[owner]
	delete(c.at, owner)
	c.taken[at[0]] &^= span(kind, at[1])
}

// held is how many of each kind are somewhere.
type held [4]int

// fits reports whether so many devices can hold them together, whatever lay
// where: a 7g takes a device, a 3g a half. The first half of a device has four
// slices for others, or two 2g; the second three slices, or one 2g and a 1g.
func (h held) fits(devices int) bool {
	devices -= h[3]
	second := min(h[2], devices) // halves that 3g take, the poorer ones first
	first := h[2] - second
	if devices < 0 || first > devices {
		return false
	}
	a, b := devices-first, devices-second
	return h[1] <= 2*a+b && h[0] <= 4*a+3*b-2*h[1]
}

// moving says yes if everything could be moved to make room: no one can do more.
type moving struct {
	devices int
	held    held
}

func (c *moving) take(_, kind int) bool {
	c.held[kind]++
	if c.held.fits(c.devices) {
		return true
	}
	c.held[kind]--
	return false
}

func (c *moving) leave(_, kind int) { c.held[kind]-- }

// repacking may move what is on a device within it, and gives the device with the
// fewest slices left.
type repacking struct {
	on []held
	at map[int]int
}

func newRepacking(devices int) *repacking {
	return &repacking{make([]held, devices), map[int]int{}}
}

func (c *repacking) take(owner, kind int) bool {
	best, most := -1, -1
	for d, h := range c.on {
		used := 0
		for k := range h {
			used += h[k] * sizes[k]
		}
		h[kind]++
		if used > most && h.fits(1) {
			best, most = d, used
		}
	}
	if best < 0 {
		return false
	}
	c.on[best][kind]++
	c.at[owner] = best
	return true
}

func (c *repacking) leave(owner, kind int) {
	c.on[c.at[owner]][kind]--
	delete(c.at, owner)
}

// possible counts by search whether one device can hold them.
func possible(h held, taken uint8) bool {
	for kind := range h {
		if h[kind] == 0 {
			continue
		}
		h[kind]--
		for _, start := range starts[kind] {
			if taken&span(kind, start) == 0 && possible(h, taken|span(kind, start)) {
				return true
			}
		}
		return false
	}
	return true
}
