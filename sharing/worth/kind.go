// SPDX-License-Identifier: Apache-2.0

package worth

import (
	"cmp"
	"slices"
	"strings"

	"deviceshare/sharing"
)

// Amounts is what a pod asks of a node beside devices, or what is free of it: thousandths
// of a CPU and bytes.
type Amounts struct{ CPU, Memory float64 }

// Less returns what is left of the amounts, never below zero.
func (a Amounts) Less(b Amounts) Amounts {
	return Amounts{CPU: max(0, a.CPU-b.CPU), Memory: max(0, a.Memory-b.Memory)}
}

// Kind is what pods that are alike ask for. It is comparable.
type Kind struct {
	// Needs is what the pod asks for beside devices.
	Needs Amounts
	// Devices is how many shares the pod gets in all, 0 for a pod without devices. If they differ,
	// memory and cores are those of the last container with the most devices.
	Devices int
	memory  sharing.Memory
	cores   sharing.Percent
	// Models and modes of devices that the pod accepts, as texts of lists.
	use, not, modes string
}

// KindOf returns the kind of a pod; request is nil if it asks for no devices.
func KindOf(request *sharing.PodRequest, needs Amounts) Kind {
	k := Kind{Needs: Amounts{CPU: max(0, needs.CPU), Memory: max(0, needs.Memory)}}
	if request == nil {
		return k
	}
	most, early := 0, 0
	for i := range request.Requests {
		r := &request.Requests[i]
		if r.Kind == sharing.Init {
			early = max(early, r.Count)
		} else {
			k.Devices += r.Count
		}
		if r.Count >= most {
			most, k.memory, k.cores = r.Count, r.Memory, r.Cores
		}
	}
	k.Devices = max(k.Devices, early)
	s := &request.Selector
	k.use, k.not = strings.Join(s.UseModels, ","), strings.Join(s.NotModels, ",")
	for _, m := range request.Modes {
		k.modes += string(m) + ","
	}
	return k
}

// compareTo is a total order of kinds, so that what is learned does not depend on the order of
// a map.
func (k *Kind) compareTo(o *Kind) int {
	absolute := func(k *Kind) sharing.Bytes { b, _ := k.memory.Absolute(); return b }
	percent := func(k *Kind) sharing.Percent { p, _ := k.memory.Percent(); return p }
	return cmp.Or(
		cmp.Compare(k.Devices, o.Devices), cmp.Compare(absolute(k), absolute(o)), cmp.Compare(percent(k), percent(o)),
		cmp.Compare(k.cores, o.cores), cmp.Compare(k.Needs.CPU, o.Needs.CPU), cmp.Compare(k.Needs.Memory, o.Needs.Memory),
		cmp.Compare(k.use, o.use), cmp.Compare(k.not, o.not), cmp.Compare(k.modes, o.modes))
}

// sizeOn returns how much of a device of a class a share takes, in hundredths: the larger
// of the parts of memory and compute; 0 if the class does not suit.
func (k *Kind) sizeOn(c *Class) int {
	if k.Devices == 0 || !k.acceptsClass(c) {
		return 0
	}
	return k.sizeByAmounts(c)
}

// sizeByAmounts is sizeOn whatever model and mode the class has.
func (k *Kind) sizeByAmounts(c *Class) int {
	memory := k.memory.On(c.Memory)
	if k.memory.Whole() || k.cores >= wholeDevice {
		return wholeDevice
	}
	size := max(toHundredths(int64(memory), int64(c.Memory)), toHundredths(int64(k.cores), int64(c.Cores)))
	if size > wholeDevice {
		return 0
	}
	return size
}

// meanSize returns how much of a device a share takes on average, as a part of it, on those that
// suit; 0 if none does.
func (k *Kind) meanSize(devices map[Class]int) float64 {
	sum, n := 0, 0
	for c, number := range devices {
		if size := k.sizeOn(&c); size > 0 {
			sum, n = sum+size*number, n+number
		}
	}
	return float64(sum) / float64(max(1, n)) / wholeDevice
}

func (k *Kind) acceptsClass(c *Class) bool {
	if k.modes != "" && !slices.Contains(strings.Split(k.modes, ","), string(c.Mode)) {
		return false
	}
	accepts := sharing.Selector{UseModels: splitList(k.use), NotModels: splitList(k.not)}
	return accepts.Accepts(&sharing.Device{Model: c.Model})
}

func splitList(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// toHundredths returns part/of in hundredths, rounded up; 101 for more than all of it.
func toHundredths(part, of int64) int {
	switch {
	case part <= 0:
		return 0
	case part > of:
		return wholeDevice + 1
	case of > 1<<53:
		return int(part/(of/wholeDevice)) + 1
	}
	return int((part*wholeDevice + of - 1) / of)
}
