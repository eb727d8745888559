// SPDX-License-Identifier: Apache-2.0

package mig

import (
	"math"

	"deviceshare/sharing"
)

// losses is a table like loss8: by the state of the first four slices and that of the others, of
// which a device of 4 has none, and of a device of 8 that is one partition.
type losses struct {
	halves [halves][halves]int16
	whole  int16
}

// shapeLoss is the loss of a shape.
func (l *losses) shapeLoss(s *shape) int64 {
	if s[0] == 8 {
		return int64(l.whole)
	}
	return int64(l.halves[s.halfState(0)][s.halfState(4)])
}

// forecast is the losses of devices that are alike.
type forecast struct {
	model  string
	memory sharing.Bytes
	slices int
	losses *losses
}

// maxForecasts bounds how many kinds of devices are learned about: the known ones that can be cut
// are fewer. Each takes a few milliseconds.
const maxForecasts = 8

// minAskedShares is how many shares must have been asked for before their sizes mean something.
const minAskedShares = 100

// Learn implements sharing.Learner. Devices with listed geometries are weighed by what is free, see
// room, so there is nothing to learn about them.
func (b backend) Learn(demands []sharing.Demand) sharing.Backend {
	type question struct {
		slices  int
		weights bySize
	}
	var learned []forecast
	known := map[question]*losses{}
	chains := map[int]*chain{}
	for i := range demands {
		d := demands[i].Device
		if d.MIG == nil || d.MIG.Policy != sharing.BestFit || len(d.MIG.Geometries) > 0 || d.MIG.Slices != 4 && d.MIG.Slices != 8 || len(learned) == maxForecasts {
			continue
		}
		weights, ok := weightsOf(&demands[i])
		if !ok {
			continue
		}
		q := question{d.MIG.Slices, weights}
		if known[q] == nil {
			if chains[q.slices] == nil {
				chains[q.slices] = newChain(q.slices)
			}
			known[q] = lossesFor(chains[q.slices], weights)
		}
		learned = append(learned, forecast{model: d.Model, memory: d.Memory, slices: q.slices, losses: known[q]})
	}
	if learned == nil {
		return backend{}
	}
	return backend{learned: &learned}
}

// lossesOf returns what was learned about a device, nil for nothing.
func (b backend) lossesOf(d *sharing.Device) *losses {
	if b.learned == nil {
		return nil
	}
	for i := range *b.learned {
		if f := &(*b.learned)[i]; f.memory == d.Memory && f.slices == d.MIG.Slices && f.model == d.Model {
			return f.losses
		}
	}
	return nil
}

// weightsOf returns the part of each size among the shares asked for; false if they are too few.
func weightsOf(demand *sharing.Demand) (weights bySize, ok bool) {
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
		weights[k] += n
		sum += n
	}
	for k := range weights {
		weights[k] /= max(1, sum)
	}
	return weights, sum >= minAskedShares
}

// The two values of a state, see worth.go, count as these parts of the loss.
const (
	partAlone  = 2.0 / 3
	partPooled = 1 - partAlone
)

// lossesFor works out the table for what is asked for. A device that is one partition loses what it
// does in the fixed table, so that modes compete as before.
func lossesFor(c *chain, asked bySize) *losses {
	alone, pooled := c.singleDeviceValues(dampWeights(asked), loadAlone), c.pooledValues(asked, loadPooled)
	whole := c.wholeState()
	scale := float64(lossOfAll)
	if c.slices == 4 {
		scale = float64(loss4[halves-1])
	}
	l := &losses{whole: lossOfAll}
	for i := range c.states {
		part := partAlone*ratioToWhole(alone[i], alone[whole]) + partPooled*ratioToWhole(pooled[i], pooled[whole])
		loss := int16(math.Round(min(max(0, scale*part), math.MaxInt16)))
		if s := &c.states[i]; s[0] < 8 {
			l.halves[s.halfState(0)][s.halfState(4)] = loss
		}
	}
	// Where no state has a place in the table, a single is at the last slice of 8. It counts as the
	// one before.
	for low := range l.halves {
		for high := 2; high < halves-1 && c.slices == 8; high += 4 {
			l.halves[low][high] = l.halves[low][high-1]
		}
	}
	return l
}

// ratioToWhole is a value as a part of that of a device that is one partition.
func ratioToWhole(value, whole float64) float64 {
	if whole > -settled {
		return 0
	}
	return value / whole
}

// How much is asked of a device that is thought of alone, and of a pool, as a part of its slices.
const loadAlone, loadPooled = 0.7, 1.0

// dampWeights returns the weights that a device which is thought of alone is asked with, see
// worth.go.
func dampWeights(asked bySize) bySize {
	base := bySize{4, 7, 6, 10}
	for k := range asked {
		base[k] *= math.Sqrt(math.Sqrt(asked[k]))
	}
	return base
}
