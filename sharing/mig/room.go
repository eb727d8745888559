// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"math/bits"

	"deviceshare/sharing"
)

// lossEstimator weighs what is lost on a device, in thousandths of a memory slice below
// what it is worth empty.
type lossEstimator struct {
	view *sharing.View
	now  int64
	// table is that of the device, shape the device as it is.
	table *losses
	shape shape
	// Without a table it is weighed by its places, of all slices of all of them: each span,
	// and from where on they are those of the next group. Free places are one
	// group. The groups that are possible now have their bit set.
	spans    [maxWeighed]uint64
	ends     [maxGroups]uint8
	groups   int
	possible uint64
	all      int
}

// maxWeighed and maxGroups bound how many places and groups are weighed: more than any
// known device has. Partitions of places and groups beyond them can still be given.
const maxWeighed, maxGroups = 96, 32

// measureDevice prepares r for a device. It is delayed until there is a place to weigh, since most
// devices of a full cluster have none.
func (r *lossEstimator) measureDevice(v *sharing.View) {
	r.view = v
	p := v.Device.MIG
	if r.table != nil {
		r.shape = shapeOf(v)
		r.now = r.table.shapeLoss(&r.shape)
		return
	}
	if len(p.Geometries) == 0 {
		r.addLegalPlaces(p)
	}
	for g := range p.Geometries {
		r.addGeometryPlaces(p, g)
	}
	r.now = r.lossByPlaces(0)
}

func (r *lossEstimator) addLegalPlaces(p *sharing.Partitioning) {
	n := 0
	for f := range p.Profiles {
		for _, start := range p.Profiles[f].Starts {
			if span, ok := spanOf(p, &p.Profiles[f], start); ok && n < maxWeighed {
				r.spans[n] = span
				r.all += bits.OnesCount64(span)
				n++
			}
		}
	}
	r.ends[0], r.groups, r.possible = uint8(n), 1, 1
}

func (r *lossEstimator) addGeometryPlaces(p *sharing.Partitioning, g int) {
	l, ok := laidOut(r.view, g)
	n := r.firstPlace(r.groups)
	if r.groups == maxGroups || !ok || n+len(l.at) > maxWeighed {
		return
	}
	for i := range l.at {
		r.spans[n], _ = spanOf(p, &p.Profiles[l.at[i].profile], int(l.at[i].start))
		r.all += bits.OnesCount64(r.spans[n])
		n++
	}
	if l.coversInUse(r.view) {
		r.possible |= 1 << r.groups
	}
	r.ends[r.groups] = uint8(n)
	r.groups++
}

// firstPlace returns the index of the first place of a group.
func (r *lossEstimator) firstPlace(group int) int {
	if group == 0 {
		return 0
	}
	return int(r.ends[group-1])
}

// lossWith returns what is lost when one more partition is there.
func (r *lossEstimator) lossWith(v *sharing.View, start, size int) int64 {
	if r.view == nil {
		r.measureDevice(v)
	}
	if r.table == nil {
		return r.lossByPlaces(sharing.Partition{Start: start, Size: size}.Slices())
	}
	s := r.shape.withPartition(start, size)
	return r.table.shapeLoss(&s)
}

// lossByPlaces is what is lost when these slices are given too, where there is no
// table. It is first the places that are no longer possible, each counting as
// many as its slices, as a part of all places: a measure of the kind of the
// fragmentation gradient of Zambianco et al., arXiv 2511.18906. Alone it spreads
// partitions over devices and starves the largest profile, so a part is added
// that grows with what is in use, ever more slowly: of places that cost the same
// it chooses the one on the fuller device.
func (r *lossEstimator) lossByPlaces(span uint64) int64 {
	if r.all == 0 {
		return 0
	}
	used, left := takenSlices(r.view)|span, 0
	for g := range r.groups {
		places := r.spans[r.firstPlace(g):r.ends[g]]
		if r.possible&(1<<g) == 0 || len(r.view.Device.MIG.Geometries) > 0 && span != 0 && !containsSpan(places, span) {
			continue
		}
		for _, place := range places {
			if place&used == 0 {
				left += bits.OnesCount64(place)
			}
		}
	}
	slices, n := int64(r.view.Device.MIG.Slices), int64(bits.OnesCount64(used))
	return slices*1000*int64(r.all-left)/int64(r.all) + usageWeight*n*(2*slices-n)
}

// usageWeight is the weight of what is in use. Results are the same within a percent
// from 30 to 100.
const usageWeight = 50

func containsSpan(spans []uint64, span uint64) bool {
	for _, s := range spans {
		if s == span {
			return true
		}
	}
	return false
}
