// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"math"

	"deviceshare/sharing"
)

// forecast is the losses of devices that are alike.
type forecast struct {
	model  string
	memory sharing.Bytes
	slices int
	losses *losses
}

// maxForecasts bounds how many kinds of devices are learned about: the known ones that can be cut
// are fewer. Each takes less than a millisecond.
const maxForecasts = 8

// minAskedShares is how many shares must have been asked for before their sizes mean something.
const minAskedShares = 100

// Learn implements sharing.Learner. Devices with listed geometries are weighed by what is free, see
// room, so there is nothing to learn about them.
func (b backend) Learn(demands []sharing.Demand) sharing.Backend {
	var learned []forecast
	for i := range demands {
		d := demands[i].Device
		if usualLosses(d) == nil || len(learned) == maxForecasts {
			continue
		}
		if asked, ok := askedSizes(&demands[i]); ok {
			l := lossesFor(d.MIG.Slices, weightsFor(d.MIG.Slices, asked))
			learned = append(learned, forecast{model: d.Model, memory: d.Memory, slices: d.MIG.Slices, losses: l})
		}
	}
	if learned == nil {
		return backend{}
	}
	return backend{learned: &learned}
}

// lossesOf returns the losses of a device: those that were learned, else the usual ones; nil if it
// is weighed by its places.
func (b backend) lossesOf(d *sharing.Device) *losses {
	for i := 0; b.learned != nil && i < len(*b.learned); i++ {
		if f := &(*b.learned)[i]; f.memory == d.Memory && f.slices == d.MIG.Slices && f.model == d.Model {
			return f.losses
		}
	}
	return usualLosses(d)
}

// usualLosses returns the losses of a device of which nothing was learned; nil if it is weighed by
// its places.
func usualLosses(d *sharing.Device) *losses {
	switch {
	case d.MIG == nil || d.MIG.Policy != sharing.BestFit || len(d.MIG.Geometries) > 0:
		return nil
	case d.MIG.Slices == 4:
		return usual4
	case d.MIG.Slices == 8:
		return usual8
	}
	return nil
}

// weightsFor returns how often each size is expected. asked is the part of each among the shares
// asked for. Its fourth root counts, so that a size which is rare keeps some room; a size that
// nobody asks for keeps none.
func weightsFor(slices int, asked bySize) bySize {
	weights := bySize{4, 7, 6, 10} // usual: of those tried, it serves several mixes well
	if slices == 4 {
		weights = bySize{4, 7, 16} // the largest takes the device
	}
	for k := range weights {
		weights[k] *= math.Sqrt(math.Sqrt(asked[k]))
	}
	return weights
}

// askedSizes returns the part of each size among the shares asked for; false if they are too few.
func askedSizes(demand *sharing.Demand) (asked bySize, ok bool) {
	d, sum := demand.Device, 0.0
	for i := range demand.Asked {
		a := &demand.Asked[i]
		w := resolveRequest(d, &a.Request)
		least, fits := w.leastSlices(d.MIG)
		k, known := sizeOf(least)
		if !fits || !known || a.Count <= 0 {
			continue
		}
		n := float64(a.Count) * float64(max(1, a.Request.Count))
		asked[k] += n
		sum += n
	}
	for k := range asked {
		asked[k] /= max(1, sum)
	}
	return asked, sum >= minAskedShares
}
