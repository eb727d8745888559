// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"slices"
	"strings"

	"deviceshare/sharing"
)

// Part is what a pod takes of the devices of one model. The model is "" as long as it is not
// known which one the pod gets.
type Part struct {
	Model  string
	Memory int64 // bytes
	Cores  int64 // percent of one device, added up over devices
	Number int64 // shares of devices
}

// Amounts is what pods take of devices: one part for each model, in the order of the models.
type Amounts []Part

// The most that one pod counts for of one model. It keeps sums of amounts from wrapping that
// others wrote into annotations: there is room for 2^17 such pods.
const (
	maxMemory = 1 << 45
	maxCores  = 1 << 40
	maxNumber = 1 << 40
)

// SumFor adds up what a limit is about.
func (a Amounts) SumFor(l *Limit) int64 {
	var sum int64
	for i := range a {
		if l.appliesTo(a[i].Model) {
			sum += a[i].resourceAmount(l.Resource)
		}
	}
	return sum
}

func (p *Part) resourceAmount(r Resource) int64 {
	switch r {
	case Cores:
		return p.Cores
	case Number:
		return p.Number
	default:
		return p.Memory
	}
}

// addSigned adds other amounts, sign times, and returns the sum. It changes the amounts that it is
// called on.
func (a Amounts) addSigned(b Amounts, sign int64) Amounts {
	for i := range b {
		at, found := a.modelIndex(b[i].Model)
		if !found {
			a = slices.Insert(a, at, Part{Model: b[i].Model})
		}
		a[at].Memory += sign * b[i].Memory
		a[at].Cores += sign * b[i].Cores
		a[at].Number += sign * b[i].Number
	}
	return a
}

// Plus returns the sum of two amounts. It changes neither.
func (a Amounts) Plus(b Amounts) Amounts { return slices.Clone(a).addSigned(b, 1) }

// modelIndex returns the place of a model.
func (a Amounts) modelIndex(model string) (int, bool) {
	return slices.BinarySearchFunc(a, model, func(p Part, m string) int { return strings.Compare(p.Model, m) })
}

// clampParts returns the amounts with each part within what a pod can count for.
func (a Amounts) clampParts() Amounts {
	for i := range a {
		a[i].Memory = min(max(a[i].Memory, 0), maxMemory)
		a[i].Cores = min(max(a[i].Cores, 0), maxCores)
		a[i].Number = min(max(a[i].Number, 0), maxNumber)
	}
	return a
}

// Total adds up what devices have, for the limits that follow from guarantees. Devices that
// are broken or cordoned have nothing.
func Total(inventories ...*sharing.Inventory) Amounts {
	var sum Amounts
	for _, inv := range inventories {
		for i := range inv.Devices {
			if d := &inv.Devices[i]; d.IsInService() {
				sum = sum.addSigned(Amounts{{Model: d.Model, Memory: int64(d.Memory), Cores: int64(d.Cores), Number: int64(d.MaxShares)}}.clampParts(), 1)
			}
		}
	}
	return sum
}

// Held returns what a placement takes: of each device the most at any one time, init containers
// beside app containers being the larger of the two, and of all devices the sum. A share of all
// memory of a device counts as all of its compute too, since nobody else can use that, and so do
// the devices of a pod that accepts no other beside it count as a whole.
//
// Shares are counted by model, and not by device: an init container and an app container on two
// devices are one, as Volcano counts them.
func Held(p *sharing.Placement, inv *sharing.Inventory) Amounts {
	var sum Amounts
	models := map[string]struct{}{}
	for id := range devicesOf(p) {
		one := Part{}
		d, known := inv.Device(id)
		if known {
			one.Model = d.Model
		}
		models[one.Model] = struct{}{}
		one.Memory = peakAmount(p, func(s *sharing.Share) int64 {
			if s.Device != id {
				return 0
			}
			return int64(s.Memory)
		})
		one.Cores = peakAmount(p, func(s *sharing.Share) int64 {
			switch {
			case s.Device != id:
				return 0
			case known && s.Cores == 0 && s.Memory >= d.Memory:
				return wholeCores
			}
			return int64(s.Cores)
		})
		if known && p.Neighbours.IsAlone() {
			one = one.max(wholeOf(d))
		}
		sum = sum.addSigned(Amounts{one}.clampParts(), 1)
	}
	for model := range models {
		sum = sum.addSigned(Amounts{{Model: model, Number: peakAmount(p, func(s *sharing.Share) int64 {
			if d, known := inv.Device(s.Device); known && d.Model != model || !known && model != "" {
				return 0
			}
			return 1
		})}}, 1)
	}
	return sum.clampParts()
}

// wholeOf is what a pod takes of a device that nobody else can use.
func wholeOf(d *sharing.Device) Part {
	return Part{Model: d.Model, Memory: int64(d.Memory), Cores: wholeCores}
}

// wholeCores is all compute of a device.
const wholeCores = 100

func devicesOf(p *sharing.Placement) map[sharing.DeviceID]struct{} {
	ids := map[sharing.DeviceID]struct{}{}
	for i := range p.Containers {
		for j := range p.Containers[i].Shares {
			ids[p.Containers[i].Shares[j].Device] = struct{}{}
		}
	}
	return ids
}

// peakAmount returns the most that the shares of a pod come to at any one time.
func peakAmount(p *sharing.Placement, amount func(*sharing.Share) int64) int64 {
	var steady, most int64
	for i := range p.Containers {
		c := &p.Containers[i]
		var one int64
		for j := range c.Shares {
			one += min(max(amount(&c.Shares[j]), 0), maxMemory)
		}
		if c.Kind == sharing.Init {
			most = max(most, steady+one)
		} else {
			steady += one
		}
	}
	return max(most, steady)
}
