// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

// Amounts beyond these are typing errors: no node has as many devices, no device
// has as much memory.
const (
	mostDevices               = 1024
	mostMemory  sharing.Bytes = 16 << 40
)

// readContainer reads what one container asks for; false if it asks for nothing.
// Mistakes are noted.
func (r *reader) readContainer(path string, c *podspec.Container) (sharing.Request, bool) {
	before := len(r.mistakes)
	r.checkAmounts(path, c)
	number, named := c.Amount(r.Names.Number)
	if number <= 0 {
		r.withoutDevices(path, c, named && number == 0)
		return sharing.Request{}, false
	}
	r.checkMemoryConflict(path, c)
	devices := min(number, mostDevices)
	req := sharing.Request{
		Container: c.Name,
		Kind:      c.Kind,
		Count:     int(devices),
		Memory:    r.readMemory(c, devices),
		Cores:     r.readCores(c, devices),
		Even:      r.split && devices > 1,
		User:      c.User,
		Namespace: r.namespace,
	}
	return req, len(r.mistakes) == before
}

func (r *reader) checkAmounts(path string, c *podspec.Container) {
	number, _ := c.Amount(r.Names.Number)
	devices := max(1, min(number, mostDevices))
	for _, name := range r.Names.Existing() {
		amount, ok := c.Amount(name)
		at := limitPath(path, name)
		switch {
		case !ok:
		case amount < 0:
			r.addMistake(at, fmt.Sprintf("%d is negative", amount))
		case name == r.Names.Number:
			if amount > mostDevices {
				r.addMistake(at, fmt.Sprintf("%d is more devices than any node has", amount))
			}
		case r.split && devices > 1:
			r.checkTotal(at, name, amount, devices)
		case name == r.Names.Memory && amount > r.mostMemory():
			r.addMistake(at, fmt.Sprintf("%d is more than any device has: the unit is %v", amount, sharing.MiBs(r.Factor)))
		case name == r.Names.Percentage && (amount == 0 || amount > 100):
			r.addMistake(at, fmt.Sprintf("%d is outside 1 to 100", amount))
		case name == r.Names.Cores && amount > 100:
			r.addMistake(at, fmt.Sprintf("%d is more than 100: it is percent of one device, and each of the container's devices gives that much", amount))
		}
	}
}

func (r *reader) checkMemoryConflict(path string, c *podspec.Container) {
	amount, _ := c.Amount(r.Names.Memory)
	if _, relative := c.Amount(r.Names.Percentage); relative && amount > 0 {
		r.addMistake(limitPath(path, r.Names.Percentage), fmt.Sprintf("given together with %s: give one of them", r.Names.Memory))
	}
}

// mostMemory is the most memory one device may be asked for, in units of the factor.
func (r *reader) mostMemory() int64 { return int64(mostMemory/sharing.MiB) / r.Factor }

// checkTotal checks an amount that is split over several devices.
func (r *reader) checkTotal(at, name string, amount, devices int64) {
	most, unit := 100*devices, "1 percent"
	given := amount
	if name == r.Names.Memory {
		most, unit = r.mostMemory()*devices, "1MiB"
		given = min(amount, most) * r.Factor
	}
	switch zero := given == 0; {
	case zero && name != r.Names.Percentage:
	case amount > most:
		r.addMistake(at, fmt.Sprintf("%d is more than %d devices have, over which %s splits it: want at most %d", amount, devices, wire.UserSplit, most))
	case given < devices:
		r.addMistake(at, fmt.Sprintf("%d cannot be split evenly over %d devices: that is less than %s of each", amount, devices, unit))
	}
}

// amountPerDevice is what each of several devices gives of an amount that is a total. All give the
// same, and never more than the total: the remainder, fewer units than there are devices, is given
// by none. Units are MiB of memory and percent of compute. Without the annotation an amount is that
// of each device already.
func (r *reader) amountPerDevice(amount, devices int64) int64 {
	if r.split {
		return amount / max(devices, 1)
	}
	return amount
}

// withoutDevices complains about amounts of no device. The kubelet calls the
// device plugin only for the number, so such a container would start without a
// device, or with all of them.
func (r *reader) withoutDevices(path string, c *podspec.Container, zero bool) {
	for _, name := range r.Names.Existing() {
		if amount, _ := c.Amount(name); name == r.Names.Number || amount <= 0 {
			continue
		}
		if zero {
			r.addMistake(limitPath(path, r.Names.Number), fmt.Sprintf("0 devices, but %s is asked of each: write %s: 1, or remove %s",
				name, r.Names.Number, name))
			return
		}
		if _, named := c.Amount(r.Names.Number); named {
			return // negative, and reported as such
		}
		r.addMistake(limitPath(path, name), fmt.Sprintf("asked without %s: add the line %s: 1 to the limits", r.Names.Number, r.Names.Number))
		return
	}
}

// readMemory reads how much memory of each device. An explicit amount of 0 asks for
// the whole memory, as it always did. A default is that of one device, and is not split.
func (r *reader) readMemory(c *podspec.Container, devices int64) sharing.Memory {
	amount, said := c.Amount(r.Names.Memory)
	percent, relative := c.Amount(r.Names.Percentage)
	most := r.mostMemory()
	switch {
	case relative:
		return sharing.PercentMemory(sharing.Percent(min(max(r.amountPerDevice(percent, devices), 0), 100)))
	case !said:
		if amount = r.Defaults.Memory; amount > 0 && amount <= most {
			return sharing.AbsoluteMemory(sharing.MiBs(amount * r.Factor))
		}
	case amount > 0 && amount/max(devices, 1) <= most:
		return sharing.AbsoluteMemory(sharing.MiBs(r.amountPerDevice(amount*r.Factor, devices)))
	}
	return sharing.WholeMemory()
}

func (r *reader) readCores(c *podspec.Container, devices int64) sharing.Percent {
	if amount, ok := c.Amount(r.Names.Cores); ok {
		return sharing.Percent(min(max(r.amountPerDevice(amount, devices), 0), 100))
	}
	return r.Defaults.Cores
}

func limitPath(path, name string) string { return path + " resources.limits[" + name + "]" }
