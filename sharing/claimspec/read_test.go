// SPDX-License-Identifier: Apache-2.0

package claimspec_test

import (
	"reflect"
	"testing"

	"deviceshare/sharing"
	"deviceshare/sharing/claimspec"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

type capacities = map[string]int64

// config is one of the driver with these fields.
func config(path, fields string, requests ...string) claimspec.Config {
	return claimspec.Config{Path: path, Driver: wire.ClaimDriver, Requests: requests, Parameters: []byte(parameters(fields))}
}

// claim is one request for a device with some configurations.
func claim(fields ...string) *claimspec.Claim {
	c := &claimspec.Claim{UID: "uid-1", Namespace: "team", Name: "gpu",
		Requests: []claimspec.Request{{Name: "gpu", Class: wire.ClaimDriver, Mode: "ExactCount", Count: 1}}}
	for i, f := range fields {
		c.Configs = append(c.Configs, config([]string{"spec.devices.config[0]", "spec.devices.config[1]"}[i], f))
	}
	return c
}

func class(fields ...string) *claimspec.Class {
	c := &claimspec.Class{Name: "gpu-small"}
	for _, f := range fields {
		c.Configs = append(c.Configs, config("DeviceClass gpu-small spec.config[0]", f))
	}
	return c
}

// edited is a claim after an edit.
func edited(c *claimspec.Claim, edit func(*claimspec.Claim)) *claimspec.Claim {
	edit(c)
	return c
}

func withCapacity(c *claimspec.Claim, amounts capacities) *claimspec.Claim {
	c.Requests[0].Capacity = amounts
	return c
}

func TestWhatAClaimAsks(t *testing.T) {
	gib := func(n int64) sharing.Memory { return sharing.AbsoluteMemory(sharing.Bytes(n) * sharing.GiB) }
	type asked struct {
		memory  sharing.Memory
		cores   sharing.Percent
		count   int
		modes   []sharing.Mode
		policy  string
		oneNUMA bool
	}
	const gpus = 1 << 30
	for name, c := range map[string]struct {
		claim    *claimspec.Claim
		class    *claimspec.Class
		defaults request.Defaults
		factor   int64
		want     asked
	}{
		"nothing is the whole memory of a device, and no guarantee": {claim: claim(), want: asked{memory: sharing.WholeMemory(), count: 1}},
		"nothing is what the defaults say": {claim: claim(), factor: 1024, defaults: request.Defaults{Memory: 4, Cores: 20},
			want: asked{memory: gib(4), cores: 20, count: 1}},
		"the defaults do not replace what is said": {claim: claim(`"memory":"1Gi","cores":0`), defaults: request.Defaults{Memory: 4096, Cores: 20},
			want: asked{memory: gib(1), count: 1}},
		"a default that no device has is none": {claim: claim(), factor: 1 << 20, defaults: request.Defaults{Memory: 17},
			want: asked{memory: sharing.WholeMemory(), count: 1}},
		"the greatest default": {claim: claim(), factor: 1 << 20, defaults: request.Defaults{Memory: 16},
			want: asked{memory: gib(16 << 10), count: 1}},
		"a default that overflows is none": {claim: claim(), factor: 1 << 20, defaults: request.Defaults{Memory: 1 << 62},
			want: asked{memory: sharing.WholeMemory(), count: 1}},
		"several devices, the amounts are of each": {
			claim: edited(claim(`"memory":"1Gi"`), func(c *claimspec.Claim) { c.Requests[0].Count = 32 }), want: asked{memory: gib(1), count: 32}},
		"the class alone": {claim: claim(), class: class(`"memory":"2Gi","cores":10,"modes":["mig"],"policy":"spread","numa":"single"`),
			want: asked{gib(2), 10, 1, []sharing.Mode{sharing.MIG}, "spread", true}},
		"the claim takes precedence over the class, field by field": {
			claim: claim(`"memory":"1Gi","policy":"binpack"`), class: class(`"memory":"2Gi","cores":10,"modes":["mig"],"policy":"spread","numa":"single"`),
			want: asked{gib(1), 10, 1, []sharing.Mode{sharing.MIG}, "binpack", true}},
		"modes of the claim replace those of the class, and are not added": {claim: claim(`"modes":["mps"]`), class: class(`"modes":["mig","mps"]`),
			want: asked{memory: sharing.WholeMemory(), count: 1, modes: []sharing.Mode{sharing.MPS}}},
		"a percentage of the claim replaces the amount of the class": {claim: claim(`"memoryPercentage":50`), class: class(`"memory":"2Gi"`),
			want: asked{memory: sharing.PercentMemory(50), count: 1}},
		"an amount of the claim replaces the percentage of the class": {claim: claim(`"memory":"2Gi"`), class: class(`"memoryPercentage":50`),
			want: asked{memory: gib(2), count: 1}},
		"cores of 0 in the claim take the guarantee of the class away": {claim: claim(`"cores":0`), class: class(`"cores":10`),
			want: asked{memory: sharing.WholeMemory(), count: 1}},
		"a later configuration takes precedence": {claim: claim(`"memory":"1Gi","cores":5`, `"memory":"3Gi"`), want: asked{memory: gib(3), cores: 5, count: 1}},
		"a configuration for another driver counts for nothing": {
			claim: edited(claim(`"memory":"1Gi"`), func(c *claimspec.Claim) {
				c.Configs = append(c.Configs, claimspec.Config{Path: "x", Driver: "gpu.nvidia.com", Parameters: []byte(`{"kind":"GpuConfig"}`)})
			}), want: asked{memory: gib(1), count: 1}},
		"a configuration for the request by its name": {
			claim: edited(claim(), func(c *claimspec.Claim) { c.Configs = []claimspec.Config{config("x", `"cores":7`, "other", "gpu")} }),
			want:  asked{memory: sharing.WholeMemory(), cores: 7, count: 1}},
		"a configuration for another request counts for nothing": {
			claim: edited(claim(), func(c *claimspec.Claim) { c.Configs = []claimspec.Config{config("x", `"cores":7`, "other")} }),
			want:  asked{memory: sharing.WholeMemory(), count: 1}},
		"capacities":                            {claim: withCapacity(claim(), capacities{"memory": 3 * gpus, "cores": 30}), want: asked{memory: gib(3), cores: 30, count: 1}},
		"capacities of 0 cores":                 {claim: withCapacity(claim(), capacities{"cores": 0}), class: class(`"cores":5`), want: asked{memory: sharing.WholeMemory(), count: 1}},
		"a capacity is rounded up to a MiB":     {claim: withCapacity(claim(), capacities{"memory": gpus - 1}), want: asked{memory: gib(1), count: 1}},
		"capacities take precedence of a class": {claim: withCapacity(claim(), capacities{"memory": gpus}), class: class(`"memory":"2Gi","cores":9`), want: asked{memory: gib(1), cores: 9, count: 1}},
		"the same amounts in both ways": {claim: withCapacity(claim(`"memory":"1Gi","cores":30`), capacities{"memory": gpus, "cores": 30}),
			want: asked{memory: gib(1), cores: 30, count: 1}},
		"one amount in each way": {claim: withCapacity(claim(`"cores":30`), capacities{"memory": gpus}), want: asked{memory: gib(1), cores: 30, count: 1}},
		"a mode that is not written": {claim: edited(claim(), func(c *claimspec.Claim) { c.Requests[0].Mode = "" }),
			want: asked{memory: sharing.WholeMemory(), count: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.class == nil {
				c.class = class()
			}
			got, mistakes := claimspec.Read(c.claim, c.class, request.Rules{Factor: c.factor, Defaults: c.defaults})
			if len(mistakes) > 0 {
				t.Fatal(mistakes)
			}
			want := sharing.PodRequest{Owner: "uid-1", Namespace: "team", Modes: c.want.modes, Policy: c.want.policy, OneNUMA: c.want.oneNUMA,
				Requests: []sharing.Request{{Container: "gpu", Count: c.want.count, Memory: c.want.memory, Cores: c.want.cores, Namespace: "team"}}}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

const (
	request0   = "spec.devices.requests[0]"
	capacity0  = request0 + ".exactly.capacity.requests"
	percentage = " is outside 0 to 100: it is percent of one device"
)

func TestMistakesInClaims(t *testing.T) {
	edit := func(f func(*claimspec.Request)) *claimspec.Claim {
		return edited(claim(), func(c *claimspec.Claim) { f(&c.Requests[0]) })
	}
	for name, c := range map[string]struct {
		claim *claimspec.Claim
		class *claimspec.Class
		want  []string
	}{
		"no request": {claim: &claimspec.Claim{}, want: []string{
			"spec.devices.requests: 0 requests: a claim of vgpu.volcano.sh has one; write exactly.count for several devices that are alike"}},
		"two requests, each with a mistake": {
			claim: edited(claim(), func(c *claimspec.Claim) {
				c.Requests = append(c.Requests, claimspec.Request{Name: "b", Count: 0, Capacity: capacities{"x": 1}})
				c.Configs = []claimspec.Config{config("spec.devices.config[0]", `"cores":101`, "b")}
			}),
			want: []string{
				"spec.devices.requests: 2 requests: a claim of vgpu.volcano.sh has one; write exactly.count for several devices that are alike",
				"spec.devices.requests[1].exactly.count: 0 is outside 1 to 32", at + ".cores: 101" + percentage,
				"spec.devices.requests[1].exactly.capacity.requests[x]: is not known: the capacities are memory and cores"}},
		"constraints": {claim: edited(claim(), func(c *claimspec.Claim) { c.Constraints = 2 }), want: []string{
			"spec.devices.constraints: are not supported: write numa: single into the parameters for devices of one NUMA node"}},
		"alternatives": {claim: edit(func(q *claimspec.Request) { *q = claimspec.Request{Name: "gpu", Alternatives: 2} }), want: []string{
			request0 + ".firstAvailable: is not supported: write exactly, and modes in the parameters in order of preference"}},
		"all devices": {claim: edit(func(q *claimspec.Request) { q.Mode, q.Count = "All", 0 }), want: []string{
			request0 + ".exactly.allocationMode: All is not supported: want ExactCount"}},
		"no device":          {claim: edit(func(q *claimspec.Request) { q.Count = 0 }), want: []string{request0 + ".exactly.count: 0 is outside 1 to 32"}},
		"less than none":     {claim: edit(func(q *claimspec.Request) { q.Count = -1 }), want: []string{request0 + ".exactly.count: -1 is outside 1 to 32"}},
		"33 devices":         {claim: edit(func(q *claimspec.Request) { q.Count = 33 }), want: []string{request0 + ".exactly.count: 33 is outside 1 to 32"}},
		"access of an admin": {claim: edit(func(q *claimspec.Request) { q.Admin = true }), want: []string{request0 + ".exactly.adminAccess: is not supported: leave it out"}},
		"a mistake of the administrator says whose it is": {claim: claim(), class: class(`"memory":"10GB"`), want: []string{
			`DeviceClass gpu-small spec.config[0].opaque.parameters.memory: "10GB" is no amount of memory: want one such as 10Gi or 512Mi`}},
		"a placement in the spec": {
			claim: edited(claim(), func(c *claimspec.Claim) {
				c.Configs = []claimspec.Config{{Path: "spec.devices.config[0]", Driver: wire.ClaimDriver, Parameters: []byte(`{"apiVersion":"vgpu.volcano.sh/v1","kind":"Placement"}`)}}
			}), want: []string{at + ".kind: Placement is what the scheduler writes into a claim's status: write ShareParameters to ask for devices"}},
		"everything at once": {
			claim: edited(withCapacity(claim(`"cores":101`, `"mode":"mig"`), capacities{"cores": -1}), func(c *claimspec.Claim) {
				c.Constraints, c.Requests[0].Count, c.Requests[0].Admin = 1, 99, true
			}), class: class(`"numa":true`),
			want: []string{
				"spec.devices.constraints: are not supported: write numa: single into the parameters for devices of one NUMA node",
				request0 + ".exactly.count: 99 is outside 1 to 32", request0 + ".exactly.adminAccess: is not supported: leave it out",
				"DeviceClass gpu-small spec.config[0].opaque.parameters.numa: is true: want single",
				at + ".cores: 101" + percentage,
				"spec.devices.config[1].opaque.parameters.mode: is not known: the fields are memory, memoryPercentage, cores, modes, policy, numa",
				capacity0 + "[cores]: -1" + percentage}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.class == nil {
				c.class = class()
			}
			got, mistakes := claimspec.Read(c.claim, c.class, request.Rules{})
			compare(t, mistakes, c.want)
			if !reflect.DeepEqual(got, sharing.PodRequest{}) {
				t.Errorf("half-read: %+v", got)
			}
		})
	}
}

func TestMistakesInCapacities(t *testing.T) {
	const inTwoWays = ": asks for another amount than the claim's parameters: write it in one place"
	for name, c := range map[string]struct {
		claim *claimspec.Claim
		want  []string
	}{
		"capacities that there are not": {claim: withCapacity(claim(), capacities{"shares": 1, "gpu.nvidia.com/memory": 1}), want: []string{
			capacity0 + "[gpu.nvidia.com/memory]: is not known: the capacities are memory and cores",
			capacity0 + "[shares]: is not known: the capacities are memory and cores"}},
		"a memory without its unit": {claim: withCapacity(claim(), capacities{"memory": 10240}), want: []string{
			capacity0 + "[memory]: 10240 is less than 1Mi: a number alone is bytes, write 10240Mi for so many MiB"}},
		"no memory, and cores of two devices": {claim: withCapacity(claim(), capacities{"memory": 0, "cores": 200}), want: []string{
			capacity0 + "[cores]: 200" + percentage,
			capacity0 + "[memory]: 0 is not more than 0: for the whole memory write memoryPercentage: 100 in the parameters"}},
		"negative capacities": {claim: withCapacity(claim(), capacities{"memory": -5, "cores": -1}), want: []string{
			capacity0 + "[cores]: -1" + percentage,
			capacity0 + "[memory]: -5 is not more than 0: for the whole memory write memoryPercentage: 100 in the parameters"}},
		"a memory beyond all devices": {claim: withCapacity(claim(), capacities{"memory": 1<<63 - 1}), want: []string{
			capacity0 + "[memory]: 9223372036854775807 is more than any device has"}},
		"two amounts in two ways": {claim: withCapacity(claim(`"memory":"1Gi","cores":30`), capacities{"memory": 2 << 30, "cores": 31}), want: []string{
			capacity0 + "[cores]" + inTwoWays, capacity0 + "[memory]" + inTwoWays}},
		"an amount and a percentage in two ways": {claim: withCapacity(claim(`"memoryPercentage":50`), capacities{"memory": 2 << 30}), want: []string{
			capacity0 + "[memory]" + inTwoWays}},
	} {
		t.Run(name, func(t *testing.T) {
			_, mistakes := claimspec.Read(c.claim, class(), request.Rules{})
			compare(t, mistakes, c.want)
		})
	}
}

// A webhook does not know of other classes whether they are for our driver.
func TestAClaimIsCheckedByItselfOnlyIfItNamesTheDriver(t *testing.T) {
	all := func(c *claimspec.Claim) *claimspec.Claim {
		c.Requests[0].Mode = "All"
		return c
	}
	other := func(c *claimspec.Claim) *claimspec.Claim {
		c.Requests[0].Class = "gpu-small"
		return c
	}
	const wrong = "spec.devices.requests[0].exactly.allocationMode: All is not supported: want ExactCount"
	for name, c := range map[string]struct {
		claim *claimspec.Claim
		want  []string
	}{
		"by the class of the chart":         {all(claim()), []string{wrong}},
		"by a configuration":                {all(other(claim(``))), []string{wrong}},
		"not by any other class":            {all(other(claim())), nil},
		"a right one":                       {claim(`"memory":"1Gi"`), nil},
		"not by a configuration of another": {edited(all(other(claim(``))), func(c *claimspec.Claim) { c.Configs[0].Driver = "gpu.nvidia.com" }), nil},
		"a mistake in a configuration":      {other(claim(`"memory":"1GB"`)), []string{at + `.memory: "1GB" is no amount of memory: want one such as 10Gi or 512Mi`}},
	} {
		t.Run(name, func(t *testing.T) { compare(t, claimspec.CheckSpec(c.claim), c.want) })
	}
}

func TestWhetherAClaimLosesSomethingWithItsCapacities(t *testing.T) {
	const gib = 1 << 30
	for name, c := range map[string]struct {
		claim *claimspec.Claim
		want  bool
	}{
		"one that has none":                     {claim(`"memory":"1Gi"`), false},
		"memory":                                {withCapacity(claim(), capacities{"memory": gib}), true},
		"cores of 0, which a class may ask for": {withCapacity(claim(), capacities{"cores": 0}), true},
		"another amount than before":            {withCapacity(claim(`"memory":"1Gi"`), capacities{"memory": gib, "cores": 5}), true},
		"the same amounts in both ways":         {withCapacity(claim(`"memory":"1Gi","cores":5`), capacities{"memory": gib, "cores": 5}), false},
		"one with a mistake":                    {withCapacity(claim(`"memory":"1Gi","mode":1`), capacities{"memory": gib}), true},
		"one with a mistake and without":        {claim(`"mode":1`), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := claimspec.NeedsCapacity(c.claim); got != c.want {
				t.Error(got)
			}
		})
	}
}

func TestAClassIsCheckedAsFarAsItIsForTheDriver(t *testing.T) {
	c := class(`"cores":101`, `"memory":"x"`)
	c.Configs = append(c.Configs, claimspec.Config{Path: "y", Driver: "gpu.nvidia.com", Parameters: []byte(`{}`)})
	compare(t, claimspec.CheckClass(c), []string{
		"DeviceClass gpu-small spec.config[0].opaque.parameters.cores: 101 is outside 0 to 100: it is percent of one device",
		`DeviceClass gpu-small spec.config[0].opaque.parameters.memory: "x" is no amount of memory: want one such as 10Gi or 512Mi`})
	compare(t, claimspec.CheckClass(class(`"cores":100`)), nil)
}

func TestReadingAClaimChangesNothing(t *testing.T) {
	make := func() (*claimspec.Claim, *claimspec.Class) {
		return withCapacity(claim(`"modes":["mig"],"memory":"1Gi"`, `"cores":1`), capacities{"memory": 1 << 30}), class(`"modes":["mps"]`)
	}
	c, k := make()
	claimspec.Read(c, k, request.Rules{})
	wantClaim, wantClass := make()
	if !reflect.DeepEqual(c, wantClaim) || !reflect.DeepEqual(k, wantClass) {
		t.Error("the claim or its class was changed")
	}
}
