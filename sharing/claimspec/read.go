// SPDX-License-Identifier: Apache-2.0

package claimspec

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"deviceshare/sharing"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

// mostDevices is how many devices a claim may have: the most results that an allocation takes.
const mostDevices = 32

// exactCount is the allocation mode of a claim that names a number of devices.
const exactCount = "ExactCount"

// The capacities of a request that say what is asked of each device.
const (
	capacityMemory = "memory"
	capacityCores  = "cores"
)

// Read turns a claim of our driver into a request, whose owner is the claim. The claim's one
// request is its container. rules are by what containers are read that do not say everything. If
// there is any mistake the request is empty.
func Read(c *Claim, class *Class, rules request.Rules) (sharing.PodRequest, []request.Mistake) {
	r := &reader{}
	r.checkShape(c)
	p := r.readConfigs(class.Configs, "").overriddenBy(r.readOwn(c))
	if len(r.mistakes) > 0 {
		return sharing.PodRequest{}, r.mistakes
	}
	of := &c.Requests[0]
	asked := sharing.Request{
		Container: of.Name, Kind: sharing.App, Count: int(of.Count), Namespace: c.Namespace,
		Memory: defaultMemory(rules), Cores: rules.Defaults.Cores,
	}
	if p.Memory != nil {
		asked.Memory = *p.Memory
	}
	if p.Cores != nil {
		asked.Cores = *p.Cores
	}
	return sharing.PodRequest{
		Owner: sharing.Owner(c.UID), Namespace: c.Namespace, Requests: []sharing.Request{asked},
		Modes: p.Modes, Policy: p.Policy, OneNUMA: p.OneNUMA != nil && *p.OneNUMA,
	}, nil
}

// CheckClass returns what is wrong with the configurations of a DeviceClass for our driver.
func CheckClass(class *Class) []request.Mistake {
	r := &reader{}
	r.readConfigs(class.Configs, "")
	return r.mistakes
}

// CheckSpec returns what is wrong with a claim that says by itself that it is for our driver,
// whatever its class says. Of other claims nothing is wrong.
func CheckSpec(c *Claim) []request.Mistake {
	if !c.NamesDriver() {
		return nil
	}
	_, mistakes := Read(c, &Class{}, request.Rules{})
	return mistakes
}

// NeedsCapacity reports whether a claim would ask for something else without its capacities, which
// API servers before Kubernetes 1.36 drop in silence. Of a claim with other mistakes it is true if
// it has any.
func NeedsCapacity(c *Claim) bool {
	without := *c
	without.Requests = slices.Clone(c.Requests)
	has := false
	for i := range without.Requests {
		has = has || len(without.Requests[i].Capacity) > 0
		without.Requests[i].Capacity = nil
	}
	r := &reader{}
	return has && (!reflect.DeepEqual(r.readOwn(c), (&reader{}).readOwn(&without)) || len(r.mistakes) > 0)
}

// defaultMemory is what a claim gets that names no memory. A default that no device has is none.
func defaultMemory(rules request.Rules) sharing.Memory {
	n, factor := rules.Defaults.Memory, max(rules.Factor, 1)
	if n > 0 && n <= int64(mostMemory/sharing.MiB)/factor {
		return sharing.AbsoluteMemory(sharing.MiBs(n * factor))
	}
	return sharing.WholeMemory()
}

// checkShape refuses what our driver does not serve.
func (r *reader) checkShape(c *Claim) {
	if n := len(c.Requests); n != 1 {
		r.addMistake("spec.devices.requests", "%d requests: a claim of %s has one; write exactly.count for several devices that are alike", n, wire.ClaimDriver)
	}
	if c.Constraints > 0 {
		r.addMistake("spec.devices.constraints", "are not supported: write numa: single into the parameters for devices of one NUMA node")
	}
	for i := range c.Requests {
		q, path := &c.Requests[i], fmt.Sprintf("spec.devices.requests[%d]", i)
		switch {
		case q.Alternatives > 0:
			r.addMistake(path+".firstAvailable", "is not supported: write exactly, and modes in the parameters in order of preference")
		case q.Mode != "" && q.Mode != exactCount:
			r.addMistake(path+".exactly.allocationMode", "%s is not supported: want %s", excerpt(q.Mode), exactCount)
		case q.Count < 1 || q.Count > mostDevices:
			r.addMistake(path+".exactly.count", "%d is outside 1 to %d", q.Count, mostDevices)
		}
		if q.Admin {
			r.addMistake(path+".exactly.adminAccess", "is not supported: leave it out")
		}
	}
}

// readOwn reads what a claim itself says, by its configurations and by the capacities of its
// request. They may say the same, but not two things.
func (r *reader) readOwn(c *Claim) Parameters {
	if len(c.Requests) != 1 { // a mistake: what is read is for further ones
		p := r.readConfigs(c.Configs, "")
		for i := range c.Requests {
			r.readCapacity(i, &c.Requests[i], &Parameters{})
		}
		return p
	}
	p := r.readConfigs(c.Configs, c.Requests[0].Name)
	return p.overriddenBy(r.readCapacity(0, &c.Requests[0], &p))
}

// readConfigs reads the configurations of our driver that are for a request, "" for any. What later
// ones name takes precedence.
func (r *reader) readConfigs(configs []Config, of string) (p Parameters) {
	for i := range configs {
		if c := &configs[i]; c.IsOurs() && (of == "" || c.isFor(of)) {
			p = p.overriddenBy(r.readParameters(c.Path, c.Parameters))
		}
	}
	return p
}

// overriddenBy returns parameters with what later ones name in place of what these say.
func (p Parameters) overriddenBy(q Parameters) Parameters {
	if q.Memory != nil {
		p.Memory = q.Memory
	}
	if q.Cores != nil {
		p.Cores = q.Cores
	}
	if q.Modes != nil {
		p.Modes = q.Modes
	}
	if q.Policy != "" {
		p.Policy = q.Policy
	}
	if q.OneNUMA != nil {
		p.OneNUMA = q.OneNUMA
	}
	return p
}

// readCapacity reads the capacities of a request. given is what the configurations of the claim say
// of the same.
func (r *reader) readCapacity(index int, q *Request, given *Parameters) (p Parameters) {
	path := fmt.Sprintf("spec.devices.requests[%d].exactly.capacity.requests", index)
	for _, name := range slices.Sorted(maps.Keys(q.Capacity)) {
		at, amount := path+"["+excerpt(name)+"]", q.Capacity[name]
		switch name {
		case capacityMemory:
			p.Memory = r.readMemory(at, strconv.FormatInt(amount, 10), sharing.Bytes(amount))
			if p.Memory != nil && given.Memory != nil && *p.Memory != *given.Memory {
				r.addMistake(at, "asks for another amount than the claim's parameters: write it in one place")
			}
		case capacityCores:
			if amount < 0 || amount > 100 {
				r.addMistake(at, "%d is outside 0 to 100: it is percent of one device", amount)
				continue
			}
			cores := sharing.Percent(amount)
			if p.Cores = &cores; given.Cores != nil && cores != *given.Cores {
				r.addMistake(at, "asks for another amount than the claim's parameters: write it in one place")
			}
		default:
			r.addMistake(at, "is not known: the capacities are %s and %s", capacityMemory, capacityCores)
		}
	}
	return p
}
