// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"cmp"
	"fmt"
	"slices"

	"deviceshare/sharing"
)

const (
	// maxPackSteps bounds how often Pack compares two ways to fill a device, so that
	// it is done within seconds.
	maxPackSteps = 4_000_000
	// maxWays bounds the ways to fill a device that are looked at. The largest has
	// fewer than a hundred.
	maxWays = 1000
)

// Pack says how to cut as few devices as possible for all these partitions at
// once: the optimum that tests compare with, of a planner who knows beforehand what
// will be asked for. Each element of the result is one device. It uses any legal
// layout, whatever geometries are listed.
//
// The result is a minimum: numbers of devices are tried from one that is
// certainly too small or just enough, by branch and bound over the ways to fill
// one device. It is an error if a profile is not one of the device's, or cannot
// be on any device, or if the search takes too long.
func Pack(p *sharing.Partitioning, wanted []sharing.GeometryEntry) ([][]sharing.Partition, error) {
	k := packing{p: p, left: make([]int, len(p.Profiles)), failed: map[string]bool{}}
	for _, e := range wanted {
		f := findProfile(p, e.Profile)
		if f < 0 {
			return nil, fmt.Errorf("pack %d of %s: the device has no such profile", e.Count, e.Profile)
		}
		k.left[f] += max(e.Count, 0)
	}
	if !grow(p, make([]int, len(k.left)), 0, k.left, &k.ways) {
		return nil, fmt.Errorf("pack %d partitions: there are more than %d ways to fill one device", sum(k.left), maxWays)
	}
	for f, n := range k.left {
		if n > 0 && !slices.ContainsFunc(k.ways, func(w []int) bool { return w[f] > 0 }) {
			return nil, fmt.Errorf("pack %d of %s: no device can have one", n, p.Profiles[f].Name)
		}
	}
	for devices := k.least(); ; devices++ {
		switch found := k.fill(devices); {
		case k.steps > maxPackSteps:
			return nil, fmt.Errorf("pack %d partitions: no plan for %d devices after %d steps", sum(k.left), devices, maxPackSteps)
		case found:
			return k.devices()
		}
	}
}

// packing is a search for a plan.
type packing struct {
	p      *sharing.Partitioning
	ways   [][]int // to fill one device, as numbers of each profile
	left   []int   // of each profile
	used   [][]int // what the devices hold so far
	failed map[string]bool
	steps  int
}

// grow lists a way to fill a device and all that hold more of the profiles from f
// on, but no more than is wanted. Ways that hold less than another are among them;
// they come last when one is chosen. False if there are too many.
func grow(p *sharing.Partitioning, way []int, f int, wanted []int, ways *[][]int) bool {
	if len(*ways) == maxWays {
		return false
	}
	*ways = append(*ways, slices.Clone(way))
	for ; f < len(way); f++ {
		if way[f] == wanted[f] {
			continue
		}
		way[f]++
		var s sketch
		if memory(p, way) <= p.Slices && s.buildLayout(p, geometryOf(p, way)) == "" && !grow(p, way, f, wanted, ways) {
			return false
		}
		way[f]--
	}
	return true
}

// memory is how many memory slices so many of each profile cover.
func memory(p *sharing.Partitioning, counts []int) int {
	n := 0
	for f, count := range counts {
		n += count * p.Profiles[f].Size
	}
	return n
}

// geometryOf is so many of each profile as a geometry.
func geometryOf(p *sharing.Partitioning, counts []int) *sharing.Geometry {
	g := &sharing.Geometry{Name: Free}
	for f, n := range counts {
		if n > 0 {
			g.Entries = append(g.Entries, sharing.GeometryEntry{Profile: p.Profiles[f].Name, Count: n})
		}
	}
	return g
}

// least is a number of devices below which nothing can be done: what is left may
// not have more memory slices, or compute slices, than they.
func (k *packing) least() int {
	compute, most := 0, 1
	for f, n := range k.left {
		compute += n * k.p.Profiles[f].Compute
	}
	for _, way := range k.ways {
		slices := 0
		for f, n := range way {
			slices += n * k.p.Profiles[f].Compute
		}
		most = max(most, slices)
	}
	return max((memory(k.p, k.left)+k.p.Slices-1)/max(k.p.Slices, 1), (compute+most-1)/most)
}

// fill places what is left on so many devices; false if it found no plan.
func (k *packing) fill(devices int) bool {
	first := k.scarcest()
	if first < 0 {
		return true
	}
	key := fmt.Sprint(devices, k.left)
	if k.steps > maxPackSteps || k.least() > devices || k.failed[key] {
		return false
	}
	var ways [][]int
	for _, way := range k.ways {
		k.steps += len(k.ways)
		if way[first] > 0 && !slices.ContainsFunc(k.ways, func(more []int) bool { return k.exceeds(more, way) }) && k.has(way) {
			ways = append(ways, way)
		}
	}
	slices.SortStableFunc(ways, func(a, b []int) int { return cmp.Compare(k.weight(b), k.weight(a)) })
	for _, way := range ways {
		k.move(way, -1)
		k.used = append(k.used, way)
		if k.fill(devices - 1) {
			return true
		}
		k.used = k.used[:len(k.used)-1]
		k.move(way, 1)
	}
	k.failed[key] = true
	return false
}

// has reports whether as much as a way holds is left.
func (k *packing) has(way []int) bool {
	for f, n := range way {
		if n > k.left[f] {
			return false
		}
	}
	return true
}

// exceeds reports whether one way holds more than another, of what is left.
func (k *packing) exceeds(more, way []int) bool {
	larger := false
	for f := range way {
		if more[f] < way[f] || more[f] > k.left[f] {
			return false
		}
		larger = larger || more[f] > way[f]
	}
	return larger
}

// scarcest is the profile that is left and has the fewest places on a device, -1
// if nothing is left.
func (k *packing) scarcest() int {
	best := -1
	for f, n := range k.left {
		if n > 0 && (best < 0 || k.p.Profiles[f].Size > k.p.Profiles[best].Size ||
			k.p.Profiles[f].Size == k.p.Profiles[best].Size && len(k.p.Profiles[f].Starts) < len(k.p.Profiles[best].Starts)) {
			best = f
		}
	}
	return best
}

// weight is how full a device is: its compute is what runs out first.
func (k *packing) weight(way []int) int {
	w := 0
	for f, n := range way {
		w += n * (k.p.Profiles[f].Compute*(k.p.Slices+1) + k.p.Profiles[f].Size)
	}
	return w
}

func (k *packing) move(way []int, sign int) {
	for f, n := range way {
		k.left[f] += sign * n
	}
}

// devices lays the plan out.
func (k *packing) devices() ([][]sharing.Partition, error) {
	plan := make([][]sharing.Partition, 0, len(k.used))
	for _, way := range k.used {
		parts, err := Layout(k.p, geometryOf(k.p, way))
		if err != nil {
			return nil, fmt.Errorf("pack: %w", err)
		}
		for i := range parts {
			parts[i].Position = freePosition(k.p, findProfile(k.p, parts[i].Profile), parts[i].Start)
		}
		plan = append(plan, parts)
	}
	return plan, nil
}

func sum(counts []int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}
