// SPDX-License-Identifier: Apache-2.0

package worth

import "slices"

// wholeDevice is a whole device in the unit of sizes: hundredths of a device.
const wholeDevice = 100

// bySize is a number for each size of a share, from 0 to a whole device.
type bySize [wholeDevice + 1]float64

// maxPivots bounds the work on one set of sizes. Known ones take less than a hundred.
const maxPivots = 400

// tolerance is what counts as zero among prices and amounts.
const tolerance = 1e-9

// priceOf returns what a share of each size is worth, in devices: the prices that make
// the demand worth most while no content of one device is worth more than 1. A size that
// nobody asks for is worth nothing, a whole device 1.
//
// Whatever the demand, the prices are between 0 and 1 and no content is worth more than
// 1; if the work is cut short, the demand may be worth less than it could be.
func priceOf(demand *bySize) bySize {
	unit := roundTo(demand)
	var rounded, price bySize
	for z := 1; z < wholeDevice; z++ {
		rounded[upTo(z, unit)] += demand[z]
	}
	t := newTableau(&rounded)
	for range maxPivots {
		if !t.improveBasis(&price) {
			break
		}
	}
	t.writePrices(&price)
	rounded, price = price, bySize{}
	for z := 1; z < wholeDevice; z++ {
		if demand[z] > 0 {
			price[z] = max(0, rounded[upTo(z, unit)])
		}
	}
	best, _ := solveKnapsack(&price)
	for z := range price {
		price[z] /= max(1, best[wholeDevice])
	}
	price[wholeDevice] = 1
	return price
}

// maxSizes bounds how many sizes are priced apart.
const maxSizes = 40

// roundTo returns the least unit to which sizes are rounded up so that there are not too many.
func roundTo(demand *bySize) int {
	for unit := 1; ; unit++ {
		var seen bySize
		n := 0
		for z := 1; z < wholeDevice; z++ {
			if r := upTo(z, unit); demand[z] > 0 && seen[r] == 0 {
				seen[r]++
				n++
			}
		}
		if n <= maxSizes {
			return unit
		}
	}
}

// upTo rounds a size up; a share that is less than a device stays so.
func upTo(size, unit int) int { return min((size+unit-1)/unit*unit, wholeDevice-1) }

// contentWorth returns what the best content of each amount that is free is worth: at most 1, and 1
// for a whole device.
func contentWorth(price *bySize) bySize {
	best, _ := solveKnapsack(price)
	for r := range best {
		best[r] = min(1, best[r])
	}
	best[wholeDevice] = 1
	return best
}

// solveKnapsack returns the most that shares are worth that fit into each amount together, and the
// size of one of them; 0 for none.
func solveKnapsack(price *bySize) (best bySize, one [wholeDevice + 1]int) {
	var sizes [wholeDevice]int
	n := 0
	for z := 1; z < wholeDevice; z++ {
		if price[z] > 0 {
			sizes[n] = z
			n++
		}
	}
	for r := 1; r <= wholeDevice; r++ {
		best[r] = best[r-1]
		for _, z := range sizes[:n] {
			if z > r {
				break
			}
			if w := best[r-z] + price[z]; w > best[r]+tolerance {
				best[r], one[r] = w, z
			}
		}
	}
	return best, one
}

// tableau is the revised simplex method on the least number of devices that serve a
// demand. A column is a content of one device, or the surplus of one size.
type tableau struct {
	sizes   []int
	inverse [][]float64 // of the basis
	amount  []float64   // of the column in each row: how many devices
	cost    []float64   // of that column: 1 for a content, 0 for a surplus
	dual    []float64
}

// newTableau begins with one content for each size: as many of it as a device holds.
func newTableau(demand *bySize) *tableau {
	t := &tableau{}
	for z := 1; z < wholeDevice; z++ {
		if demand[z] > 0 {
			t.sizes = append(t.sizes, z)
		}
	}
	for i, z := range t.sizes {
		row := make([]float64, len(t.sizes))
		row[i] = 1 / float64(wholeDevice/z)
		t.inverse = append(t.inverse, row)
		t.amount = append(t.amount, demand[z]*row[i])
		t.cost = append(t.cost, 1)
	}
	t.dual = make([]float64, len(t.sizes))
	return t
}

// writePrices writes the prices that follow from the basis.
func (t *tableau) writePrices(price *bySize) {
	*price = bySize{}
	for i, z := range t.sizes {
		t.dual[i] = 0
		for row := range t.inverse {
			t.dual[i] += t.cost[row] * t.inverse[row][i]
		}
		price[z] = t.dual[i]
	}
}

// improveBasis brings a better column into the basis; false if there is none.
func (t *tableau) improveBasis(price *bySize) bool {
	t.writePrices(price)
	column := make([]float64, len(t.sizes))
	if i := indexOfMin(t.dual); i >= 0 && t.dual[i] < -tolerance {
		column[i] = -1
		return t.pivot(column, 0)
	}
	best, one := solveKnapsack(price)
	if best[wholeDevice] <= 1+tolerance {
		return false
	}
	for r := wholeDevice; r > 0; {
		if one[r] == 0 {
			r--
			continue
		}
		i, _ := slices.BinarySearch(t.sizes, one[r])
		column[i]++
		r -= one[r]
	}
	return t.pivot(column, 1)
}

// indexOfMin returns the index of the least number, -1 if there is none.
func indexOfMin(of []float64) int {
	least := -1
	for i := range of {
		if least < 0 || of[i] < of[least] {
			least = i
		}
	}
	return least
}

// pivot replaces a column of the basis; false if none can leave.
func (t *tableau) pivot(column []float64, cost float64) bool {
	step := make([]float64, len(t.sizes))
	leaves := -1
	for row := range t.inverse {
		for i, x := range column {
			step[row] += t.inverse[row][i] * x
		}
		if step[row] > tolerance && (leaves < 0 || t.amount[row]*step[leaves] < t.amount[leaves]*step[row]) {
			leaves = row
		}
	}
	if leaves < 0 {
		return false
	}
	for i := range t.sizes {
		t.inverse[leaves][i] /= step[leaves]
	}
	t.amount[leaves] /= step[leaves]
	t.cost[leaves] = cost
	for row := range t.inverse {
		if row == leaves || step[row] == 0 {
			continue
		}
		for i := range t.sizes {
			t.inverse[row][i] -= step[row] * t.inverse[leaves][i]
		}
		t.amount[row] = max(0, t.amount[row]-step[row]*t.amount[leaves])
	}
	return true
}
