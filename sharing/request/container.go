// SPDX-License-Identifier: Apache-2.0

package request

import (
	"fmt"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
)

// Amounts beyond these are typing errors: no node has as many devices, no device
// has as much memory.
const (
	mostDevices               = 1024
	mostMemory  sharing.Bytes = 16 << 40
)

// container reads what one container asks for; false if it asks for nothing.
// Mistakes are noted.
func (r *reader) container(path string, c *podspec.Container) (sharing.Request, bool) {
	before := len(r.mistakes)
	r.amounts(path, c)
	number, named := c.Amount(r.names.Number)
	if number <= 0 {
		r.withoutDevices(path, c, named && number == 0)
		return sharing.Request{}, false
	}
	req := sharing.Request{
		Container: c.Name,
		Kind:      c.Kind,
		Count:     int(min(number, mostDevices)),
		Memory:    r.memory(path, c),
		Cores:     r.cores(c),
		User:      c.User,
		Namespace: r.namespace,
	}
	return req, len(r.mistakes) == before
}

// amounts checks each amount for itself.
func (r *reader) amounts(path string, c *podspec.Container) {
	for _, name := range r.names.Existing() {
		amount, ok := c.Amount(name)
		at := limit(path, name)
		switch {
		case !ok:
		case amount < 0:
			r.mistake(at, fmt.Sprintf("%d is negative", amount))
		case name == r.names.Number && amount > mostDevices:
			r.mistake(at, fmt.Sprintf("%d is more devices than any node has", amount))
		case name == r.names.Memory && amount > int64(mostMemory/sharing.MiB)/r.factor:
			r.mistake(at, fmt.Sprintf("%d is more than any device has: the unit is %v", amount, sharing.MiBs(r.factor)))
		case name == r.names.Percentage && (amount == 0 || amount > 100):
			r.mistake(at, fmt.Sprintf("%d is outside 1 to 100", amount))
		case name == r.names.Cores && amount > 100:
			r.mistake(at, fmt.Sprintf("%d is more than 100: it is percent of one device, and each of the container's devices gives that much", amount))
		}
	}
}

// withoutDevices complains about amounts of no device. The kubelet calls the
// device plugin only for the number, so such a container would start without a
// device, or with all of them.
func (r *reader) withoutDevices(path string, c *podspec.Container, zero bool) {
	for _, name := range r.names.Existing() {
		if amount, _ := c.Amount(name); name == r.names.Number || amount <= 0 {
			continue
		}
		if zero {
			r.mistake(limit(path, r.names.Number), fmt.Sprintf("0 devices, but %s is asked of each: write %s: 1, or remove %s",
				name, r.names.Number, name))
			return
		}
		if _, named := c.Amount(r.names.Number); named {
			return // negative, and reported as such
		}
		r.mistake(limit(path, name), fmt.Sprintf("asked without %s: add the line %s: 1 to the limits", r.names.Number, r.names.Number))
		return
	}
}

// memory reads how much memory of each device. An explicit amount of 0 asks for
// the whole memory, as it always did.
func (r *reader) memory(path string, c *podspec.Container) sharing.Memory {
	amount, said := c.Amount(r.names.Memory)
	percent, relative := c.Amount(r.names.Percentage)
	if relative && amount > 0 {
		r.mistake(limit(path, r.names.Percentage), fmt.Sprintf("given together with %s: give one of them", r.names.Memory))
		return sharing.WholeMemory()
	}
	if !said && !relative {
		amount = r.defaults.Memory
	}
	switch {
	case relative:
		return sharing.PercentMemory(sharing.Percent(min(max(percent, 0), 100)))
	case amount > 0 && amount <= int64(mostMemory/sharing.MiB)/r.factor:
		return sharing.AbsoluteMemory(sharing.MiBs(amount * r.factor))
	}
	return sharing.WholeMemory()
}

func (r *reader) cores(c *podspec.Container) sharing.Percent {
	if amount, ok := c.Amount(r.names.Cores); ok {
		return sharing.Percent(min(max(amount, 0), 100))
	}
	return r.defaults.Cores
}

func limit(path, name string) string { return path + " resources.limits[" + name + "]" }
