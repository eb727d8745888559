// SPDX-License-Identifier: Apache-2.0

// Package selectors says which devices the CEL selectors of DeviceClasses and ResourceClaims
// accept. Kubernetes' own compiler evaluates them, with its limits of cost.
package selectors

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/cel"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// foreignDriver is a driver that nobody has: whoever accepts its devices does not ask for ours.
const foreignDriver = "nobody.invalid"

// nvidiaDomain is under which NVIDIA's driver publishes attributes, which manifests select by.
const nvidiaDomain = "gpu.nvidia.com"

// Cache remembers what selectors say of devices, for the session and the one after it. It is safe
// for concurrent use.
type Cache struct {
	mu       sync.RWMutex
	programs map[string]cel.CompilationResult
	// answers are those of this session, before those of the last one.
	answers, before map[question][]sharing.DeviceID
}

// question is asked of all devices of a node at once.
type question struct {
	inventory *sharing.Inventory
	all       string
}

// NewCache returns a cache that knows no answers.
func NewCache() *Cache {
	return &Cache{programs: map[string]cel.CompilationResult{}, answers: map[question][]sharing.DeviceID{}}
}

// Begin begins a session: answers that the last one did not use are forgotten.
func (c *Cache) Begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.before, c.answers = c.answers, map[question][]sharing.DeviceID{}
}

// Check returns why an expression cannot be used, nil if it can.
func (c *Cache) Check(expression string) error {
	if p := c.compileExpression(expression); p.Error != nil {
		return fmt.Errorf("compile CEL expression %q: %w", expression, p.Error)
	}
	return nil
}

// AreOurs reports whether selectors ask for devices of our driver only. They do if they name it and
// accept no device of another driver: which devices of ours they want does not matter.
func (c *Cache) AreOurs(expressions []string) bool {
	foreign := describeDevice(&sharing.Device{ID: "GPU-0", NUMA: -1, Cores: 100})
	foreign.Driver = foreignDriver
	names := func(e string) bool {
		return strings.Contains(e, `"`+wire.ClaimDriver+`"`) || strings.Contains(e, "'"+wire.ClaimDriver+"'")
	}
	return slices.ContainsFunc(expressions, names) && !c.acceptDevice(expressions, foreign)
}

// Refused returns the devices of a node that one of the selectors does not accept, in inventory
// order. An expression that cannot be evaluated accepts none.
func (c *Cache) Refused(expressions []string, inv *sharing.Inventory) []sharing.DeviceID {
	if !slices.ContainsFunc(expressions, func(e string) bool { return !namesDriverOnly(e) }) {
		return nil
	}
	q := question{inv, strings.Join(expressions, "\x00")}
	c.mu.RLock()
	refused, known := c.answers[q]
	if !known {
		refused, known = c.before[q]
	}
	c.mu.RUnlock()
	if !known {
		for i := range inv.Devices {
			if !c.acceptDevice(expressions, describeDevice(&inv.Devices[i])) {
				refused = append(refused, inv.Devices[i].ID)
			}
		}
	}
	c.mu.Lock()
	c.answers[q] = refused
	c.mu.Unlock()
	return refused
}

// namesDriverOnly reports whether an expression is the one of the class that the chart makes.
func namesDriverOnly(expression string) bool {
	return strings.ReplaceAll(expression, " ", "") == `device.driver=="`+wire.ClaimDriver+`"`
}

func (c *Cache) acceptDevice(expressions []string, d cel.Device) bool {
	for _, e := range expressions {
		p := c.compileExpression(e)
		if p.Error != nil {
			return false
		}
		if ok, _, err := p.DeviceMatches(context.Background(), d); err != nil || !ok {
			return false
		}
	}
	return true
}

func (c *Cache) compileExpression(expression string) cel.CompilationResult {
	c.mu.RLock()
	p, known := c.programs[expression]
	c.mu.RUnlock()
	if known {
		return p
	}
	p = cel.GetCompiler(cel.Features{}).CompileCELExpression(expression, cel.Options{DisableCostEstimation: true})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.programs[expression] = p
	return p
}

// describeDevice returns a device as selectors see it. Besides ours it has the attributes by which
// the manifests of NVIDIA's driver select.
func describeDevice(d *sharing.Device) cel.Device {
	text := func(s string) resourcev1.DeviceAttribute { return resourcev1.DeviceAttribute{StringValue: &s} }
	number := func(n int) resourcev1.DeviceAttribute {
		wide := int64(n)
		return resourcev1.DeviceAttribute{IntValue: &wide}
	}
	memory := resourcev1.DeviceCapacity{Value: *resource.NewQuantity(int64(d.Memory), resource.BinarySI)}
	out := cel.Device{
		Driver: wire.ClaimDriver,
		Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{
			"uuid": text(string(d.ID)), "index": number(d.Index), "model": text(d.Model), "mode": text(string(d.Mode)),
			nvidiaDomain + "/uuid": text(string(d.ID)), nvidiaDomain + "/productName": text(d.Model), nvidiaDomain + "/type": text("gpu"),
		},
		Capacity: map[resourcev1.QualifiedName]resourcev1.DeviceCapacity{
			"memory": memory, nvidiaDomain + "/memory": memory,
			"cores": {Value: *resource.NewQuantity(int64(d.Cores), resource.DecimalSI)},
		},
	}
	if d.NUMA >= 0 {
		out.Attributes["numa"] = number(d.NUMA)
	}
	if d.PCI != "" {
		out.Attributes["pciBusID"] = text(d.PCI)
	}
	return out
}
