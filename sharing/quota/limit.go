// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"strconv"
	"strings"

	"deviceshare/sharing"
)

// Resource is what of a device a limit is about.
type Resource uint8

// The resources.
const (
	Memory Resource = iota // in bytes
	Cores                  // in percent of one device
	Number                 // in shares of devices
)

// formatAmount writes an amount of the resource for people.
func (r Resource) formatAmount(n int64) string {
	switch r {
	case Cores:
		return strconv.FormatInt(n, 10) + " percent" // no sign: Volcano formats the text once more
	case Number:
		return strconv.FormatInt(n, 10)
	default:
		return sharing.Bytes(n).String()
	}
}

// Limit is one amount that a queue was given.
type Limit struct {
	// Name is the resource as the queue spells it, with the model if there is one.
	Name     string
	Resource Resource
	// Model is the name of the models that the limit is about, as sharing.ModelWords writes it;
	// "" for the devices of all models.
	Model string
	// Amount is in the unit of the resource.
	Amount int64
}

// Text writes the amount for people, with its unit.
func (l *Limit) Text() string { return l.Resource.formatAmount(l.Amount) }

// Names are the resources that queues are given limits of, "" for one that is not read, and the
// unit of memory.
type Names struct {
	Memory, Cores, Number string
	// Factor is how many MiB one unit of the memory resource is.
	Factor int64
}

// ReadLimit reads one entry of a queue's list of resources; false if it is about something else.
// Behind a dot after the resource follows a model: "volcano.sh/vgpu-memory.a100". A negative
// amount is none.
func ReadLimit(name string, value int64, names Names) (Limit, bool) {
	value = max(value, 0)
	if model, ok := modelIn(name, names.Memory); ok {
		units := max(names.Factor, 1)
		return Limit{Name: name, Resource: Memory, Model: model, Amount: int64(sharing.MiBs(min(value, int64(sharing.MaxBytes)/units) * units))}, true
	}
	if model, ok := modelIn(name, names.Cores); ok {
		return Limit{Name: name, Resource: Cores, Model: model, Amount: value}, true
	}
	if model, ok := modelIn(name, names.Number); ok {
		return Limit{Name: name, Resource: Number, Model: model, Amount: value}, true
	}
	return Limit{}, false
}

// modelIn returns the model that follows a resource in a name; false if the name is not of that
// resource.
func modelIn(name, resource string) (string, bool) {
	rest, ok := strings.CutPrefix(name, resource)
	if resource == "" || !ok || rest == "" {
		return "", resource != "" && ok
	}
	model, ok := strings.CutPrefix(rest, ".")
	return sharing.ModelWords(model), ok
}

// appliesTo reports whether the limit is about devices of a model.
func (l *Limit) appliesTo(model string) bool {
	return l.Model == "" || sharing.IsModel(l.Model, model)
}

// IsAboutSame reports whether two limits are about the same resource of the same devices.
func (l *Limit) IsAboutSame(m *Limit) bool { return l.Resource == m.Resource && l.Model == m.Model }
