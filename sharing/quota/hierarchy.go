// SPDX-License-Identifier: Apache-2.0

package quota

import "slices"

// Root is the name of the queue above all others.
const Root = "root"

// Queue is the limits of one queue.
type Queue struct {
	Name string
	// Parent is the queue above it, "" for Root.
	Parent string
	// Capability is what the queue and those below it take at most.
	Capability []Limit
	// Guarantee is what other queues leave to it, Deserved up to where it may take from others.
	Guarantee, Deserved []Limit
}

// bound is one limit in force. Reserved says that it is what the guarantees of other queues leave.
type bound struct {
	Limit
	reserved bool
}

// Hierarchy is all queues, and all quotas of namespaces, with the limits that are in force. It is
// never changed.
type Hierarchy struct {
	queues map[string]*Queue
	chains map[string][]string
	bounds map[string][]bound
}

// NewHierarchy returns the hierarchy of the queues of a cluster whose devices add up to total. A
// queue whose parent is not known hangs below Root, and so does one that is above itself. The
// quotas of namespaces stand beside them.
func NewHierarchy(queues []Queue, total Amounts, quotas ...NamespaceQuota) *Hierarchy {
	h := &Hierarchy{queues: map[string]*Queue{}, chains: map[string][]string{}, bounds: map[string][]bound{}}
	for i := range queues {
		h.queues[queues[i].Name] = &queues[i]
	}
	below := map[string][]*Queue{}
	for name := range h.queues {
		chain := h.buildChain(name)
		h.chains[name] = chain
		if len(chain) > 1 {
			below[chain[1]] = append(below[chain[1]], h.queues[name])
		}
	}
	guaranteed := everyGuarantee(queues)
	for name, q := range h.queues {
		for _, l := range q.Capability {
			h.bounds[name] = append(h.bounds[name], bound{Limit: l})
		}
		for i := range guaranteed {
			if left, reserved := h.amountLeftByOthers(h.chains[name], &guaranteed[i], below, total); reserved {
				l := guaranteed[i]
				l.Amount = left
				h.bounds[name] = append(h.bounds[name], bound{Limit: l, reserved: true})
			}
		}
	}
	for i := range quotas {
		for _, l := range quotas[i].Limits {
			h.bounds[quotas[i].Key()] = append(h.bounds[quotas[i].Key()], bound{Limit: l})
		}
	}
	return h
}

// buildChain returns a queue and those above it.
func (h *Hierarchy) buildChain(name string) []string {
	chain := []string{name}
	for name != Root {
		q, known := h.queues[name]
		if !known {
			break
		}
		name = q.Parent
		if _, known := h.queues[name]; !known || slices.Contains(chain, name) {
			name = Root
		}
		if !slices.Contains(chain, name) {
			chain = append(chain, name)
		}
	}
	return chain
}

// everyGuarantee returns one limit for each resource that some queue has a guarantee of.
func everyGuarantee(queues []Queue) []Limit {
	var all []Limit
	for i := range queues {
		for _, l := range queues[i].Guarantee {
			if !slices.ContainsFunc(all, func(m Limit) bool { return m.IsAboutSame(&l) }) {
				all = append(all, l)
			}
		}
	}
	return all
}

// amountLeftByOthers returns what a queue may take beside what is guaranteed to the queues next to
// it, and to those next to the queues above it; false if nothing is guaranteed to them. What is
// guaranteed to the queue itself is left to it in any case.
func (h *Hierarchy) amountLeftByOthers(chain []string, of *Limit, below map[string][]*Queue, total Amounts) (int64, bool) {
	room, reserved := total.SumFor(of), false
	for i := len(chain) - 1; i >= 0; i-- {
		if i < len(chain)-1 {
			var all int64
			for _, sibling := range below[chain[i+1]] {
				all += amountOf(sibling.Guarantee, of)
			}
			own := int64(0)
			if q, known := h.queues[chain[i]]; known {
				own = amountOf(q.Guarantee, of)
			}
			reserved = reserved || all > own
			room = max(room-all, 0) + own
		}
		if q, known := h.queues[chain[i]]; known && i > 0 {
			for j := range q.Capability {
				if l := &q.Capability[j]; l.IsAboutSame(of) {
					room = min(room, l.Amount)
				}
			}
		}
	}
	return room, reserved
}

// amountOf returns the amount of the limit that is about the same as another one, 0 if there is
// none.
func amountOf(limits []Limit, of *Limit) int64 {
	for i := range limits {
		if limits[i].IsAboutSame(of) {
			return min(limits[i].Amount, maxMemory<<8)
		}
	}
	return 0
}

// hasBounds reports whether a holder of limits that an account counts for has a bound.
func (h *Hierarchy) hasBounds(a Account) bool {
	return slices.ContainsFunc(a.holders, func(name string) bool { return len(h.bounds[name]) > 0 })
}

// Chain returns a queue and those above it, from below.
func (h *Hierarchy) Chain(queue string) []string {
	if chain, known := h.chains[queue]; known {
		return chain
	}
	return []string{queue}
}
