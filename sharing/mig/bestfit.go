// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"math/bits"

	"deviceshare/sharing"
)

// maxPlaces bounds among how many places a best fit is chosen. The largest device
// has 25 with every variant.
const maxPlaces = 64

// place is where a request could be met.
type place struct {
	loss     int64 // of the device with it, see lossEstimator
	memory   sharing.Bytes
	geometry int16 // of the list, -1 for free
	position int16
	profile  int16
	start    int16
}

// bestFit meets a request in the n-th best place: of the partitions with the fewest
// memory slices that are enough, the one by which later requests lose least. It returns
// the loss in thousandths of a memory slice.
//
// They lose what the table says, or if that is nil what room.go works out.
func (w *wanted) bestFit(v *sharing.View, table *losses, n int, s *sharing.Share) (loss int64, ok bool) {
	var best [1]place
	list := best[:0]
	if n > 0 {
		var more [maxPlaces]place
		list = more[:0:min(n+1, len(more))]
	}
	r := lossEstimator{table: table}
	p := v.Device.MIG
	if len(p.Geometries) == 0 {
		list = w.freePlaces(v, &r, list)
	}
	for g := range p.Geometries {
		list = w.listedPlaces(v, g, &r, list)
	}
	if n >= len(list) {
		return 0, false
	}
	at := &list[n]
	f := &p.Profiles[at.profile]
	part := sharing.Partition{Profile: f.Name, Start: int(at.start), Size: f.Size, Geometry: Free, Position: int(at.position)}
	if at.geometry >= 0 {
		part.Geometry = p.Geometries[at.geometry].Name
	} else {
		part.Position = freePosition(p, int(at.profile), int(at.start))
	}
	w.writeShare(v.Device, f, at.memory, part, s)
	// Slices that nobody asked for are lost if another device has room of the right size.
	waste := 0
	if least, _ := w.leastSlices(p); f.Size > least {
		waste = 1000 * p.Slices
	}
	return max(at.loss-r.now, 0) + int64(waste), true
}

// freePlaces adds the places of profiles that will do, wherever they may start.
func (w *wanted) freePlaces(v *sharing.View, r *lossEstimator, list []place) []place {
	p := v.Device.MIG
	for f := range p.Profiles {
		q := &p.Profiles[f]
		if !w.mayBeMetBy(q, 0) {
			continue
		}
		for starts := freeStarts(v, f); starts != 0; starts &= starts - 1 {
			start := bits.TrailingZeros64(starts)
			list = insertPlace(p, list, place{
				loss: r.lossWith(v, start, q.Size), memory: q.Memory, geometry: -1, profile: int16(f), start: int16(start),
			})
		}
	}
	return list
}

// listedPlaces adds the free places of a geometry that the device may have. A place that
// an earlier geometry has too keeps its name from there.
func (w *wanted) listedPlaces(v *sharing.View, g int, r *lossEstimator, list []place) []place {
	p := v.Device.MIG
	l, ok := laidOut(v, g)
	if !ok || !w.mayFitGeometry(p, &p.Geometries[g]) || !l.coversInUse(v) {
		return list
	}
	for i := range l.at {
		at := &l.at[i]
		f := &p.Profiles[at.profile]
		span, _ := spanOf(p, f, int(at.start))
		if !isFree(v, int(at.profile), int(at.start), span) || !w.isMetBy(f, at.nominal) || isNameHeld(v, p.Geometries[g].Name, i) {
			continue
		}
		list = insertPlace(p, list, place{
			loss: r.lossWith(v, int(at.start), f.Size), memory: at.memory,
			geometry: int16(g), position: int16(i), profile: int16(at.profile), start: int16(at.start),
		})
	}
	return list
}

// insertPlace keeps the best places in order. A place that is there already is not
// added again.
func insertPlace(p *sharing.Partitioning, list []place, a place) []place {
	k := len(list)
	for k > 0 && isBetterPlace(p, &a, &list[k-1]) {
		k--
	}
	if k > 0 && list[k-1].profile == a.profile && list[k-1].start == a.start {
		return list
	}
	if k == cap(list) {
		return list
	}
	if len(list) < cap(list) {
		list = list[:len(list)+1]
	}
	copy(list[k+1:], list[k:])
	list[k] = a
	return list
}

// isBetterPlace orders places: fewer memory slices, less lost, the smaller or plainer
// profile, then the lower start. Equal are only places of one profile and start.
func isBetterPlace(p *sharing.Partitioning, a, b *place) bool {
	if x, y := p.Profiles[a.profile].Size, p.Profiles[b.profile].Size; x != y {
		return x < y
	}
	switch {
	case a.loss != b.loss:
		return a.loss < b.loss
	case a.profile != b.profile:
		return isPreferredProfile(p, int(a.profile), int(b.profile))
	}
	return a.start < b.start
}
