// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"math/bits"
	"slices"

	"deviceshare/sharing"
	"deviceshare/sharing/place"
)

const (
	// mostBlocks is of how many blocks all combinations are tried.
	mostBlocks = 6
	// mostChoices is among how many sets of devices a search goes on where the cheapest one does
	// not do.
	mostChoices = 128
)

// byDevice looks for the cheapest set of pods device by device, for a pod with one request: what it
// costs to clear each device does not depend on the others, but for blocks. All combinations of
// those are tried first.
//
// A set that is cheapest this way may still not do: CPU may be short, a budget, or the devices may
// be too far from each other. What better sets cost at least is noted as open then.
type byDevice struct {
	*question
	one sharing.PodRequest // the request for one device only
	// blocks are atoms of several pods or of pods with several devices. single marks the others.
	blocks []atom
	single []bool
	known  map[clearingKey]clearing

	best    Cost
	set     []bool
	bound   bool // a set must cost less than best
	open    Cost
	hasOpen bool
}

// clearing is the cheapest way to make one device fit.
type clearing struct {
	device int
	pods   []int
	cost   Cost // without grace
	fits   bool
}

// clearingKey is what a clearing depends on: the device, the blocks that leave it, and how much
// grace its pods may have.
type clearingKey struct {
	device int
	blocks uint64
	grace  int32
}

func newByDevice(q *question, atoms []atom, limit Cost, limited bool) *byDevice {
	b := &byDevice{question: q, one: q.wish.forOneDevice(), single: make([]bool, len(q.victims)), known: map[clearingKey]clearing{}, best: limit, bound: limited}
	for _, a := range atoms {
		devices := 0
		for _, i := range a.pods {
			devices += len(q.devices[i])
		}
		switch {
		case devices == 0:
		case len(a.pods) == 1 && devices == 1 && a.cost.Gangs == 0:
			b.single[a.pods[0]] = true
		default:
			b.blocks = append(b.blocks, a)
		}
	}
	slices.SortStableFunc(b.blocks, func(x, y atom) int { return x.cost.Compare(y.cost) })
	return b
}

// searchBlocks tries all combinations of blocks. Of too many, it tries those of one.
func (b *byDevice) searchBlocks() {
	if len(b.blocks) <= mostBlocks {
		for m := range uint64(1) << len(b.blocks) {
			b.searchWithBlocks(m)
		}
		return
	}
	b.searchWithBlocks(0)
	for i := range min(len(b.blocks), 64) {
		b.searchWithBlocks(1 << i)
	}
	b.noteOpen(b.blocks[0].cost)
}

// searchWithBlocks looks for sets in which these blocks leave and no others.
func (b *byDevice) searchWithBlocks(blocks uint64) {
	gone := slices.Clone(b.gone)
	for m := blocks; m != 0; m &= m - 1 {
		b.blocks[bits.TrailingZeros64(m)].markPods(gone, true)
	}
	all, base, ok := b.listLeaving(gone)
	if !ok || b.bound && base.Compare(b.best) >= 0 {
		return
	}
	if slices.ContainsFunc(all, func(v *Victim) bool { return b.isHere(v) && !gone[v.position] }) {
		b.noteOpen(base) // the price of a pod would count twice
		return
	}
	var graces []int32
	for i, v := range b.victims {
		if b.single[i] && !slices.Contains(graces, v.price.Grace) {
			graces = append(graces, v.price.Grace)
		}
	}
	if slices.Sort(graces); len(graces) == 0 {
		graces = []int32{0}
	}
	// Grace does not add up. Among pods with no more than some grace, all the rest does.
	for _, most := range graces {
		b.chooseDevices(blocks, gone, base, most)
	}
}

// chooseDevices looks for the cheapest devices to clear, without pods of more grace than given.
func (b *byDevice) chooseDevices(blocks uint64, gone []bool, base Cost, grace int32) {
	var clear []clearing
	for d := range b.views {
		if c := b.clearDevice(d, blocks, gone, grace); c.fits {
			clear = append(clear, c)
		}
	}
	slices.SortStableFunc(clear, func(x, y clearing) int { return cmp.Or(x.cost.Compare(y.cost), cmp.Compare(x.device, y.device)) })
	wanted := b.wish.Request.Requests[0].Count
	if len(clear) < wanted || b.tryDevices(clear[:wanted], gone, base) {
		return
	}
	choices := chooseSets(clear, wanted)
	slices.SortStableFunc(choices, func(x, y []clearing) int { return sumOf(x).Compare(sumOf(y)) })
	for _, choice := range choices {
		if b.tryDevices(choice, gone, base) {
			return
		}
	}
	if len(choices) == mostChoices {
		b.noteOpen(base.plus(sumOf(choices[0])))
	}
}

// tryDevices has the pods leave that clear some devices. It returns whether dearer devices need not
// be tried.
func (b *byDevice) tryDevices(choice []clearing, gone []bool, base Cost) bool {
	least := base.plus(sumOf(choice))
	if b.bound && least.Compare(b.best) >= 0 {
		return true
	}
	set, most := slices.Clone(gone), slices.Clone(gone)
	for _, c := range choice {
		for _, i := range c.pods {
			set[i] = true
		}
		for _, i := range b.holders[c.device] {
			most[i] = most[i] || b.single[i]
		}
	}
	_, cost, ok := b.listLeaving(set)
	if ok && b.fitsWithout(set) && b.leavesPlaces(set) {
		if !b.bound || cost.Compare(b.best) < 0 {
			b.best, b.set, b.bound = cost, set, true
		}
		if cost.Grace = least.Grace; cost == least {
			return true
		}
	} else if !b.mayServe(choice, most) {
		return false // not whoever leaves
	}
	b.noteOpen(least)
	return false
}

// mayServe reports whether the wish may get these devices when so many pods leave.
func (b *byDevice) mayServe(choice []clearing, most []bool) bool {
	b.steps--
	views := make([]sharing.View, 0, len(choice))
	for d := range b.views {
		if slices.ContainsFunc(choice, func(c clearing) bool { return c.device == d }) {
			views = append(views, b.views[d].WithShares(b.sharesWithout(d, most)))
		}
	}
	_, refused := place.Place(views, b.wish.Request, b.wish.Backends, b.wish.Policy)
	return !refused.Refused()
}

// clearDevice returns the cheapest way to make one device fit.
func (b *byDevice) clearDevice(d int, blocks uint64, gone []bool, grace int32) clearing {
	key := clearingKey{device: d, blocks: b.blocksOn(d, blocks), grace: grace}
	if c, ok := b.known[key]; ok {
		return c
	}
	c := cover{
		gone: gone, steps: &b.steps, alike: b.areAlike,
		fits: func(gone []bool) bool { return b.fitsDevice(d, gone) },
		price: func(chosen []bool) (cost Cost, ok bool) {
			for _, i := range b.holders[d] {
				if chosen[i] && !gone[i] {
					cost = cost.plus(b.victims[i].price)
				}
			}
			cost.Grace = 0
			return cost, true
		},
	}
	for _, i := range b.holders[d] {
		if price := b.victims[i].price; b.single[i] && price.Grace <= grace {
			price.Grace = 0
			c.atoms = append(c.atoms, atom{pods: []int{i}, cost: price})
		}
	}
	if !c.findBest() {
		b.noteOpen(Cost{})
	}
	found := clearing{device: d, cost: c.best, fits: c.set != nil}
	for i, leaves := range c.set {
		if leaves && !gone[i] {
			found.pods = append(found.pods, i)
		}
	}
	b.known[key] = found
	return found
}

// blocksOn returns those of the blocks that have something of a device.
func (b *byDevice) blocksOn(d int, blocks uint64) (on uint64) {
	for m := blocks; m != 0; m &= m - 1 {
		k := bits.TrailingZeros64(m)
		if slices.ContainsFunc(b.blocks[k].pods, func(i int) bool { return slices.Contains(b.holders[d], i) }) {
			on |= 1 << k
		}
	}
	return on
}

// fitsDevice reports whether one device without some pods would do.
func (b *byDevice) fitsDevice(d int, gone []bool) bool {
	b.steps--
	view := b.views[d].WithShares(b.sharesWithout(d, gone))
	_, refused := place.Place([]sharing.View{view}, &b.one, b.wish.Backends, b.wish.Policy)
	return !refused.Refused()
}

func (b *byDevice) noteOpen(least Cost) {
	if !b.hasOpen || least.Compare(b.open) < 0 {
		b.open, b.hasOpen = least, true
	}
}

// chooseSets returns all sets of so many clearings, at most mostChoices.
func chooseSets(all []clearing, wanted int) (sets [][]clearing) {
	var choose func(from int, chosen []clearing)
	choose = func(from int, chosen []clearing) {
		switch {
		case len(sets) == mostChoices:
		case len(chosen) == wanted:
			sets = append(sets, slices.Clone(chosen))
		default:
			for i := from; i <= len(all)-(wanted-len(chosen)); i++ {
				choose(i+1, append(chosen, all[i]))
			}
		}
	}
	choose(0, nil)
	return sets
}

func sumOf(choice []clearing) (sum Cost) {
	for i := range choice {
		sum = sum.plus(choice[i].cost)
	}
	return sum
}
