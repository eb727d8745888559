// SPDX-License-Identifier: Apache-2.0

package churn_test

import (
	"math"
	"testing"
)

// The closed form of what devices can hold agrees with a search over one device,
// and with the search over two.
func TestWhatDevicesCanHold(t *testing.T) {
	for n := range 8 * 5 * 4 * 2 {
		h := held{n % 8, n / 8 % 5, n / 40 % 4, n / 160}
		if got, want := h.fits(1), possible(h, 0); got != want {
			t.Fatalf("%v on one device: %v, want %v", h, got, want)
		}
		if n%3 != 0 {
			continue // two devices take long
		}
		if got, want := h.fits(2), split(h, held{}, 0); got != want {
			t.Fatalf("%v on two devices: %v, want %v", h, got, want)
		}
	}
}

// split tries every way to share what is held among two devices.
func split(h, first held, kind int) bool {
	if kind == len(h) {
		return possible(first, 0) && possible(h, 0)
	}
	for n := 0; n <= h[kind]; n++ {
		a, b := first, h
		a[kind], b[kind] = n, h[kind]-n
		if split(b, a, kind+1) {
			return true
		}
	}
	return false
}

// everything takes all requests and counts what is there.
type everything struct{ slices, most int }

func (c *everything) take(_, kind int) bool {
	c.slices += sizes[kind]
	c.most = max(c.most, c.slices)
	return true
}

func (c *everything) leave(_, kind int) { c.slices -= sizes[kind] }

// integral adds up the slices in use at each arrival, which come at random.
type integral struct {
	everything
	sum, n float64
}

func (c *integral) take(owner, kind int) bool {
	c.sum += float64(c.slices)
	c.n++
	return c.everything.take(owner, kind)
}

// If everything were given, the slices in use at any time would be load times
// those that exist: the load means what it says.
func TestTheLoadIsTheSlicesThatWouldBeInUse(t *testing.T) {
	for _, m := range mixes {
		c := &integral{}
		n := churn(c, 100, m, 1.0, 0, 60, 1)
		c.sum, c.n = 0, 0
		for seed := range uint64(6) {
			d := &integral{}
			churn(d, 100, m, 1.0, 0, 60, seed+1)
			c.sum, c.n = c.sum+d.sum, c.n+d.n
		}
		// The first unit of time is filling up.
		if got := c.sum / c.n / 800; math.Abs(got-59.0/60) > 0.02 {
			t.Errorf("%v: %.3f of all slices in use", m, got)
		}
		for kind, part := range m {
			if got := float64(n.asked[kind]) / float64(total(n.asked)); math.Abs(got-part) > 0.02 {
				t.Errorf("%v: %.3f are of kind %d", m, got, kind)
			}
		}
	}
}

func total(n [4]int) int { return n[0] + n[1] + n[2] + n[3] }
