// SPDX-License-Identifier: Apache-2.0

package place

import (
	"slices"

	"deviceshare/sharing"
)

// group is the candidates that may serve one container together: those of one mode and, if
// the container asks for an even split, of one amount.
type group struct{ rank, class int16 }

func (c *candidate) group() group { return group{c.rank, c.class} }

// takeTogether picks several devices of one group, of which there are enough: the best set, see
// merit.
func (a *attempt) takeTogether(i int, picks []pick, all []candidate) []pick {
	wanted := a.pod.Requests[i].Count
	together := bestGroup(all, wanted)
	team := all[:0]
	for k := range all {
		if all[k].group() == together {
			team = append(team, all[k])
		}
	}
	var room [maxCandidates]int16
	for _, k := range a.bestSet(team, wanted, picks, room[:0]) {
		picks = a.pick(i, picks, team[k])
	}
	return picks
}

// bestGroup is the group whose wanted best devices score highest together, among
// those that have as many. There are so many in one group.
func bestGroup(all []candidate, wanted int) (best group) {
	var most int64
	found := false
	for k := range all {
		g := all[k].group()
		if grouped(all[:k], g) {
			continue
		}
		score, n := g.sum(all[k:], wanted)
		if n == wanted && (!found || score > most || score == most && g.before(best)) {
			best, most, found = g, score, true
		}
	}
	return best
}

// grouped reports whether one of the candidates is of the group.
func grouped(all []candidate, g group) bool {
	for k := range all {
		if all[k].group() == g {
			return true
		}
	}
	return false
}

// sum adds the scores of the best candidates of the group, at most so many, and counts them.
func (g group) sum(all []candidate, most int) (score int64, n int) {
	for k := range all {
		if n < most && all[k].group() == g {
			score += all[k].score
			n++
		}
	}
	return score, n
}

// before decides between groups of equal score: by the order of the backends, then by which
// amount was met first.
func (g group) before(h group) bool {
	return g.rank < h.rank || g.rank == h.rank && g.class < h.class
}

// mostAmounts bounds how many different amounts of one device are weighed for an even split. A
// device has fewer profiles of partitions that differ in memory or compute.
const mostAmounts = 16

// evenly lists what request i could get of each device, every amount once, best first. The
// refusals count those of the largest group.
func (a *attempt) evenly(i int, picks []pick, refusals *sharing.Refusals) []candidate {
	a.work = maxWork
	all := a.candidates(i, picks, make([]candidate, 0, mostAmounts*len(a.views)), amounts, refusals)
	most, inMode := 0, 0
	for k := range all {
		g := all[k].group()
		if _, n := g.sum(all[k:], len(all)); n > most {
			most, inMode = n, a.devicesOf(all, g.rank)
		}
	}
	fits := refusals.Found + int(refusals.Count[sharing.InAnotherMode])
	refusals.Found = most
	refusals.Count[sharing.UnevenShares] = uint16(inMode - most)
	refusals.Count[sharing.InAnotherMode] = uint16(max(0, fits-inMode))
	return all
}

// devicesOf counts the devices of a mode among the candidates.
func (a *attempt) devicesOf(all []candidate, rank int16) int {
	n := 0
	for d := range a.views {
		if slices.ContainsFunc(all, func(c candidate) bool { return c.rank == rank && int(c.device) == d }) {
			n++
		}
	}
	return n
}

// class numbers what devices give, so that candidates of one number give the same.
func (a *attempt) class(c sharing.Cost) int16 {
	c.Loss = 0
	i := slices.Index(a.classes, c)
	if i < 0 {
		i = len(a.classes)
		a.classes = append(a.classes, c)
	}
	return int16(i)
}

// add inserts a candidate. Of those of one device and amount it keeps the best if only amounts
// are listed.
func add(list []candidate, c candidate, listed listing) []candidate {
	if listed == amounts {
		k := slices.IndexFunc(list, func(other candidate) bool { return other.device == c.device && other.class == c.class })
		if k >= 0 && !before(c, list[k]) {
			return list
		}
		if k >= 0 {
			list = slices.Delete(list, k, k+1)
		}
	}
	return insert(list, c)
}
