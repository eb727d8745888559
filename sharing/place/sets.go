// SPDX-License-Identifier: Apache-2.0

package place

import (
	"cmp"
	"math/bits"
	"slices"

	"deviceshare/sharing"
)

const (
	// exactTeam is among how many devices the best set is found by weighing all sets, of which
	// there are at most 12870.
	exactTeam = 16
	// greedyStarts is from how many devices a set is grown, one device at a time, where there
	// are more. Such a set may not be the best one.
	greedyStarts = 16
)

// bestSet returns which of the team, by position, are the best set of so many. The team is sorted
// by score; of more than maxCandidates, those of highest score are weighed. It may reorder the
// team.
func (a *attempt) bestSet(team []candidate, wanted int, picks []pick, set []int16) []int16 {
	if wanted < maxCandidates {
		team = team[:min(len(team), maxCandidates)]
	}
	if len(team) > maxCandidates || wanted == len(team) || a.isEquidistant(team) {
		return a.chooseByScore(team, wanted, picks, set)
	}
	slices.SortFunc(team, func(x, y candidate) int { return int(x.device - y.device) })
	var room [exactTeam * exactTeam]pair
	s := setSearch{team: team, wanted: wanted, pairs: slices.Grow(room[:0], len(team)*len(team))[:len(team)*len(team)]}
	a.measurePairs(&s, picks)
	if len(team) <= exactTeam {
		s.branchAndBound(0, 0, 0, merit{weakest: sharing.PathNVLink})
	} else {
		s.growGreedily()
	}
	for k := range team {
		if s.best&(1<<k) != 0 {
			set = append(set, int16(k))
		}
	}
	return set
}

// isEquidistant reports whether all devices are certainly as far from each other as any two.
func (a *attempt) isEquidistant(team []candidate) bool {
	for k := range team {
		d := a.views[team[k].device].Device
		if len(d.Links) > 0 || d.NUMA != a.views[team[0].device].Device.NUMA {
			return false
		}
	}
	return true
}

// chooseByScore is the best set where paths say nothing: those of highest score, of equal ones the
// nearest.
func (a *attempt) chooseByScore(team []candidate, wanted int, picks []pick, set []int16) []int16 {
	if wanted < len(team) && a.isAnchored(picks) {
		for k := range team {
			team[k].near = a.nearPoints(int(team[k].device), picks)
		}
		slices.SortStableFunc(team, func(x, y candidate) int {
			return cmp.Or(cmp.Compare(y.score, x.score), cmp.Compare(y.near, x.near))
		})
	}
	for k := range wanted {
		set = append(set, int16(k))
	}
	return set
}

// setSearch looks for the best set of a team of at most 64 devices, in the order of the devices. A
// set is a bit for each of its devices.
type setSearch struct {
	team   []candidate
	wanted int
	pairs  []pair // of all two devices of the team
	most   int32  // the most points of any pair
	// reaches are the points of all pairs of each device.
	reaches [maxCandidates]int32
	best    uint64
	merit   merit // of the best
}

// measurePairs weighs each device and each pair of the team.
func (a *attempt) measurePairs(s *setSearch, picks []pick) {
	n := len(s.team)
	for k := range s.team {
		c := &s.team[k]
		if a.isAnchored(picks) {
			c.near = a.nearPoints(int(c.device), picks)
		}
		for j := range k {
			p := a.pairOf(int(s.team[j].device), int(c.device))
			s.pairs[j*n+k], s.pairs[k*n+j] = p, p
			s.most = max(s.most, int32(p.points))
		}
	}
	for k := range s.pairs {
		s.reaches[k/n] += int32(s.pairs[k].points)
	}
}

func (s *setSearch) meritWith(w merit, set uint64, k int) merit {
	c := &s.team[k]
	w.score += c.score
	w.near += c.near
	w.reaches += s.reaches[k]
	row := s.pairs[k*len(s.team):]
	for ; set != 0; set &= set - 1 {
		p := row[bits.TrailingZeros64(set)]
		w.weakest = min(w.weakest, p.path)
		w.links += int32(p.points)
		w.cross += int32(p.cross)
		w.near += int32(p.near)
	}
	return w
}

func (s *setSearch) updateBest(set uint64, w *merit) {
	if s.best == 0 || w.compareTo(&s.merit) > 0 {
		s.best, s.merit = set, *w
	}
}

// branchAndBound weighs every set that adds devices from position k on to a set of n devices, but
// for those that cannot be preferred any more.
func (s *setSearch) branchAndBound(k, n int, set uint64, w merit) {
	if n == s.wanted {
		s.updateBest(set, &w)
		return
	}
	for ; k <= len(s.team)-(s.wanted-n); k++ {
		if next := s.meritWith(w, set, k); s.best == 0 || s.mayBeatBest(&next, n+1) {
			s.branchAndBound(k+1, n+1, set|1<<k, next)
		}
	}
}

// mayBeatBest reports whether a set of n devices may yet become one that is not behind the best one
// by paths and NUMA nodes.
func (s *setSearch) mayBeatBest(w *merit, n int) bool {
	missing := int32(s.wanted*(s.wanted-1)-n*(n-1)) / 2
	links := w.links + missing*s.most
	switch {
	case w.weakest != s.merit.weakest:
		return w.weakest > s.merit.weakest
	case links != s.merit.links:
		return links > s.merit.links
	}
	return w.cross <= s.merit.cross
}

// growGreedily builds a set from each of the devices of highest score, adding the best device each
// time.
func (s *setSearch) growGreedily() {
	var tried uint64
	for range min(greedyStarts, len(s.team)) {
		start := -1
		for k := range s.team {
			if tried&(1<<k) == 0 && (start < 0 || s.team[k].score > s.team[start].score) {
				start = k
			}
		}
		tried |= 1 << start
		set, w := uint64(1)<<start, s.meritWith(merit{weakest: sharing.PathNVLink}, 0, start)
		for range s.wanted - 1 {
			var added uint64
			var grown merit
			for k := range s.team {
				if set&(1<<k) != 0 {
					continue
				}
				if next := s.meritWith(w, set, k); added == 0 || next.compareTo(&grown) > 0 {
					added, grown = 1<<k, next
				}
			}
			set, w = set|added, grown
		}
		s.updateBest(set, &w)
	}
}
