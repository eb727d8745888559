// SPDX-License-Identifier: Apache-2.0

package quota

import "math/big"

// Claim is what one of several queues wants of an amount that they share by weight.
type Claim struct {
	Weight int64
	// Wants is what it has and waits for, Most what it may have at most.
	Wants, Most int64
	// Least is what it gets in any case.
	Least int64
}

// ShareByWeight divides an amount among queues: each gets as much as the others for its weight, but
// no more than it wants or may have, and no less than its least. It returns what each gets, rounded
// down. A queue that weighs nothing gets its least.
//
// This is weighted max-min fairness, as Volcano's plugin proportion divides each resource. The way
// is that of CSS flexbox for lengths with bounds: what breaks its bounds is fixed there, on the
// side on which more is broken, and the rest divided again.
func ShareByWeight(total int64, claims []Claim) []int64 {
	shares, fixed := make([]int64, len(claims)), make([]bool, len(claims))
	for {
		left, weights := total, int64(0)
		for i := range claims {
			if fixed[i] {
				left -= shares[i]
			} else {
				weights += max(claims[i].Weight, 0)
			}
		}
		d := division{left: big.NewInt(max(left, 0)), weights: big.NewInt(max(weights, 1))}
		raised, sum := make([]*big.Int, len(claims)), new(big.Int)
		for i := range claims {
			if !fixed[i] {
				raised[i] = d.raiseOf(&claims[i])
				sum.Add(sum, raised[i])
			}
		}
		for i := range claims {
			if !fixed[i] && (sum.Sign() == 0 || raised[i].Sign() == sum.Sign()) {
				shares[i], fixed[i] = d.boundedShare(&claims[i]), true
			}
		}
		if sum.Sign() == 0 {
			return shares
		}
	}
}

// division is what is left for queues of some weights together.
type division struct{ left, weights *big.Int }

// raiseOf returns by how much the bounds of a claim raise its part, times all weights: less than 0
// if they lower it.
func (d *division) raiseOf(c *Claim) *big.Int {
	part := new(big.Int).Mul(d.left, big.NewInt(max(c.Weight, 0)))
	bounded := part
	if most := d.timesWeights(min(c.Wants, c.Most)); bounded.Cmp(most) > 0 {
		bounded = most
	}
	if least := d.timesWeights(c.Least); bounded.Cmp(least) < 0 {
		bounded = least
	}
	return new(big.Int).Sub(bounded, part)
}

func (d *division) timesWeights(n int64) *big.Int { return new(big.Int).Mul(big.NewInt(n), d.weights) }

// boundedShare returns the part of a claim within its bounds, rounded down.
func (d *division) boundedShare(c *Claim) int64 {
	part := new(big.Int).Mul(d.left, big.NewInt(max(c.Weight, 0)))
	part.Quo(part, d.weights)
	return max(min(part.Int64(), c.Wants, c.Most), c.Least)
}
