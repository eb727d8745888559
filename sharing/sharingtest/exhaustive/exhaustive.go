// SPDX-License-Identifier: Apache-2.0

// Package exhaustive decides by trying everything whether a pod fits the devices of a node. It is
// what tests compare the product with.
package exhaustive

import (
	"fmt"
	"slices"

	"deviceshare/sharing"
	"deviceshare/sharing/mig"
)

// Held is a share of a device, by position, that another pod has.
type Held struct {
	Device int
	Kind   sharing.ContainerKind
	Share  sharing.Share
}

// Fits reports whether a pod fits devices beside the shares of other pods. It shares no code with
// the placer: what may exist together is written down here a second time, from the definition of
// the modes and of when containers run.
func Fits(devices []sharing.Device, held []Held, pod *sharing.PodRequest) bool {
	return FitTogether(devices, held, []*sharing.PodRequest{pod})
}

// FitTogether reports whether all pods fit devices at the same time beside the shares of others.
func FitTogether(devices []sharing.Device, held []Held, pods []*sharing.PodRequest) bool {
	if len(pods) == 0 {
		return true
	}
	o := oracle{devices: devices, pod: pods[0]}
	for _, h := range held {
		o.others = append(o.others, occupant{device: h.Device, container: -1, kind: h.Kind, share: h.Share})
	}
	o.then = func(own []occupant) bool {
		with := slices.Clone(held)
		for _, x := range own {
			with = append(with, Held{Device: x.device, Kind: x.kind, Share: x.share})
		}
		return FitTogether(devices, with, pods[1:])
	}
	return o.fitsInAnyMode()
}

type oracle struct {
	devices []sharing.Device
	others  []occupant
	pod     *sharing.PodRequest
	// then says whether shares of the whole pod will do.
	then func(own []occupant) bool
}

// occupant is one share on one device, held by a container of kind.
type occupant struct {
	device    int
	container int // position in the pod; -1 for other pods
	kind      sharing.ContainerKind
	share     sharing.Share
}

// fitsInAnyMode reports whether any assignment of shares to containers is allowed.
func (o *oracle) fitsInAnyMode() bool {
	modes := o.pod.Modes
	if len(modes) == 0 {
		modes = []sharing.Mode{""}
	}
	for _, m := range modes {
		if !o.pod.OneNUMA && o.assignShares(0, 0, 0, nil, m) {
			return true
		}
		for numa := 0; o.pod.OneNUMA && numa < 3; numa++ {
			there := *o
			there.devices = slices.Clone(o.devices)
			for i := range there.devices {
				if there.devices[i].NUMA != numa {
					there.devices[i].Healthy = false
				}
			}
			if there.assignShares(0, 0, 0, nil, m) {
				return true
			}
		}
	}
	return false
}

// assignShares tries every share of every device from d on as the n-th share of
// container c, and then the rest. Mode is what the pod is confined to, if it is.
func (o *oracle) assignShares(c, n, d int, own []occupant, mode sharing.Mode) bool {
	if c == len(o.pod.Requests) {
		return o.then(own)
	}
	req := &o.pod.Requests[c]
	if n == req.Count {
		return o.assignShares(c+1, 0, 0, own, mode)
	}
	for ; d < len(o.devices); d++ {
		dev := &o.devices[d]
		if mode != "" && dev.Mode != mode || n > 0 && own[len(own)-1].share.Mode != dev.Mode {
			continue
		}
		if !dev.Healthy || dev.Cordon != nil || !o.pod.Selector.Accepts(dev) {
			continue
		}
		for _, s := range everyShare(dev, req) {
			if req.Even && n > 0 && (s.Memory != own[len(own)-1].share.Memory || s.Cores != own[len(own)-1].share.Cores) {
				continue
			}
			next := append(own[:len(own):len(own)], occupant{device: d, container: c, kind: req.Kind, share: s})
			if o.isAllowed(d, next) && o.assignShares(c, n+1, d+1, next, mode) {
				return true
			}
		}
	}
	return false
}

// everyShare lists the shares of a device that would do for a request, were the
// device empty.
func everyShare(d *sharing.Device, req *sharing.Request) []sharing.Share {
	memory := req.Memory.On(d.Memory)
	if d.Mode != sharing.MIG {
		if memory <= 0 || d.Mode == sharing.MPS && req.Count > 1 {
			return nil
		}
		cores := req.Cores
		if keepsBack := d.Memory < d.Physical || d.Cores < 100; keepsBack && cores == 0 && req.Memory.Whole() {
			cores = min(d.Cores, 100)
		}
		return []sharing.Share{{Device: d.ID, Mode: d.Mode, Memory: memory, Cores: cores}}
	}
	var all []sharing.Share
	slices := 0
	var largest sharing.Bytes
	for _, p := range d.MIG.Profiles {
		slices, largest = max(slices, p.Compute), max(largest, p.Memory)
	}
	for _, part := range everyPartition(d.MIG) {
		for _, p := range d.MIG.Profiles {
			if p.Name != part.Profile {
				continue
			}
			var compute, gib int64
			_, _ = fmt.Sscanf(p.Name, "%dg.%dgb", &compute, &gib)
			enough := max(p.Memory, sharing.Bytes(gib)<<30) >= memory
			if percent, ok := req.Memory.Percent(); ok {
				enough = p.Size*100 >= int(percent)*d.MIG.Slices
			}
			if req.Memory.Whole() {
				enough = p.Memory == largest
			}
			if enough && p.Compute*100 >= int(req.Cores)*slices {
				all = append(all, sharing.Share{Device: d.ID, Mode: d.Mode, Memory: p.Memory, Cores: sharing.Percent(p.Compute * 100 / slices), Partition: part})
			}
		}
	}
	return all
}

func everyPartition(p *sharing.Partitioning) []sharing.Partition {
	var all []sharing.Partition
	for i := range p.Geometries {
		for n := 0; ; n++ {
			part, ok := mig.At(p, p.Geometries[i].Name, n)
			if !ok {
				break
			}
			all = append(all, part)
		}
	}
	for _, f := range p.Profiles {
		for _, start := range f.Starts {
			if len(p.Geometries) == 0 {
				all = append(all, sharing.Partition{Profile: f.Name, Start: start, Size: f.Size, Geometry: mig.Free})
			}
		}
	}
	return all
}

// isAllowed reports whether everything on device d may be there: at the time of
// each init container, and when the app containers run.
func (o *oracle) isAllowed(d int, own []occupant) bool {
	var here []occupant
	for _, x := range o.others {
		if x.device == d {
			here = append(here, x)
		}
	}
	others := len(here)
	for _, x := range own {
		if x.device == d {
			here = append(here, x)
		}
	}
	dev := &o.devices[d]
	if dev.Mode == sharing.MIG && !oneGeometry(here) {
		return false
	}
	for i, x := range here[others:] {
		for _, y := range here[others : others+i] {
			p, q := x.share.Partition, y.share.Partition
			common := p.Size > 0 && q.Size > 0 && p.Start < q.Start+q.Size && q.Start < p.Start+p.Size
			if common && (p.Profile != q.Profile || p.Start != q.Start) {
				return false // they are prepared together
			}
		}
	}
	for _, x := range here[others:] {
		if x.kind != sharing.Init {
			continue
		}
		now := append([]occupant{x}, here[:others]...)
		for _, y := range here[others:] {
			if y.kind == sharing.Sidecar && y.container < x.container {
				now = append(now, y)
			}
		}
		if !mayCoexist(dev, now) {
			return false
		}
	}
	now := append([]occupant(nil), here[:others]...)
	for _, y := range here[others:] {
		if y.kind != sharing.Init {
			now = append(now, y)
		}
	}
	return mayCoexist(dev, now)
}

func oneGeometry(here []occupant) bool {
	for _, x := range here {
		if x.share.Partition.Geometry != here[0].share.Partition.Geometry {
			return false
		}
	}
	return true
}

// mayCoexist reports whether shares may be on a device at the same time.
func mayCoexist(d *sharing.Device, now []occupant) bool {
	var memory sharing.Bytes
	var cores sharing.Percent
	for i, x := range now {
		memory += x.share.Memory
		cores += x.share.Cores
		alone := d.Mode != sharing.MIG && (x.share.Cores >= 100 || x.share.Memory == d.Memory && x.share.Cores == 0)
		if alone && len(now) > 1 {
			return false
		}
		for _, y := range now[:i] {
			p, q := x.share.Partition, y.share.Partition
			if d.Mode == sharing.MIG && p.Start < q.Start+q.Size && q.Start < p.Start+p.Size {
				return false
			}
		}
	}
	return len(now) <= d.MaxShares && (d.Mode == sharing.MIG || memory <= d.Memory && cores <= d.Cores)
}
