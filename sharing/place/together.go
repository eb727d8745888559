// SPDX-License-Identifier: Apache-2.0

package place

import (
	"slices"

	"deviceshare/sharing"
)

// candidateGroup is the candidates that may serve one container together: those of one mode and, if
// the container asks for an even split, of one amount.
type candidateGroup struct{ rank, class int16 }

func (c *candidate) groupKey() candidateGroup { return candidateGroup{c.rank, c.class} }

// takeTogether picks several devices of one group, of which there are enough: the best set, see
// merit.
func (a *attempt) takeTogether(i int, picks []pick, all []candidate) []pick {
	wanted := a.pod.Requests[i].Count
	together := bestGroup(all, wanted)
	team := all[:0]
	for k := range all {
		if all[k].groupKey() == together {
			team = append(team, all[k])
		}
	}
	var room [maxCandidates]int16
	for _, k := range a.bestSet(team, wanted, picks, room[:0]) {
		picks = a.addPick(i, picks, team[k])
	}
	return picks
}

// bestGroup is the group whose wanted best devices score highest together, among
// those that have as many. There are so many in one group.
func bestGroup(all []candidate, wanted int) (best candidateGroup) {
	var most int64
	found := false
	for k := range all {
		g := all[k].groupKey()
		if containsGroup(all[:k], g) {
			continue
		}
		score, n := g.sumScores(all[k:], wanted)
		if n == wanted && (!found || score > most || score == most && g.ranksBefore(best)) {
			best, most, found = g, score, true
		}
	}
	return best
}

func containsGroup(all []candidate, g candidateGroup) bool {
	for k := range all {
		if all[k].groupKey() == g {
			return true
		}
	}
	return false
}

// sumScores adds the scores of the best candidates of the group, at most so many, and counts them.
func (g candidateGroup) sumScores(all []candidate, most int) (score int64, n int) {
	for k := range all {
		if n < most && all[k].groupKey() == g {
			score += all[k].score
			n++
		}
	}
	return score, n
}

// ranksBefore decides between groups of equal score: by the order of the backends, then by which
// amount was met first.
func (g candidateGroup) ranksBefore(h candidateGroup) bool {
	return g.rank < h.rank || g.rank == h.rank && g.class < h.class
}

// mostAmounts bounds how many different amounts of one device are weighed for an even split. A
// device has fewer profiles of partitions that differ in memory or compute.
const mostAmounts = 16

// listEvenCandidates lists what request i could get of each device, every amount once, best first.
// The refusals count those of the largest group.
func (a *attempt) listEvenCandidates(i int, picks []pick, refusals *sharing.Refusals) []candidate {
	a.work = maxWork
	all := a.listCandidates(i, picks, make([]candidate, 0, mostAmounts*len(a.views)), bestPerAmount, refusals)
	most, inMode := 0, 0
	for k := range all {
		g := all[k].groupKey()
		if _, n := g.sumScores(all[k:], len(all)); n > most {
			most, inMode = n, a.devicesOf(all, g.rank)
		}
	}
	fits := refusals.Found + int(refusals.Count[sharing.InAnotherMode])
	refusals.Found = most
	refusals.Count[sharing.UnevenShares] = uint16(inMode - most)
	refusals.Count[sharing.InAnotherMode] = uint16(max(0, fits-inMode))
	return all
}

func (a *attempt) devicesOf(all []candidate, rank int16) int {
	n := 0
	for d := range a.views {
		if slices.ContainsFunc(all, func(c candidate) bool { return c.rank == rank && int(c.device) == d }) {
			n++
		}
	}
	return n
}

// amountClass numbers what devices give, so that candidates of one number give the same.
func (a *attempt) amountClass(c sharing.Cost) int16 {
	c.Loss = 0
	i := slices.Index(a.classes, c)
	if i < 0 {
		i = len(a.classes)
		a.classes = append(a.classes, c)
	}
	return int16(i)
}

// addCandidate inserts a candidate. Of those of one device and amount it keeps the best if only
// amounts are listed.
func addCandidate(list []candidate, c candidate, listed listing) []candidate {
	if listed == bestPerAmount {
		k := slices.IndexFunc(list, func(other candidate) bool { return other.device == c.device && other.class == c.class })
		if k >= 0 && !isBetter(c, list[k]) {
			return list
		}
		if k >= 0 {
			list = slices.Delete(list, k, k+1)
		}
	}
	return insertSorted(list, c)
}
