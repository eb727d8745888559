// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"slices"
	"strings"
	"sync"
)

// Allocations is the latest allocation of each set of slots. A set is replaced by any later set
// that shares a slot with it, so it never grows beyond the slots of the node. The zero value is
// empty. It is safe for concurrent use.
type Allocations struct {
	mu    sync.Mutex
	names map[string]string // slots, sorted and joined -> allocation
}

func slotKey(slots []string) string { return strings.Join(slices.Sorted(slices.Values(slots)), ",") }

// Put remembers an allocation, and reports whether it is news.
func (a *Allocations) Put(slots []string, name string) (news bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.names[slotKey(slots)] == name {
		return false
	}
	if a.names == nil {
		a.names = map[string]string{}
	}
	for key := range a.names {
		if shareSlot(strings.Split(key, ","), slots) {
			delete(a.names, key)
		}
	}
	a.names[slotKey(slots)] = name
	return true
}

// Clear forgets all.
func (a *Allocations) Clear() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.names = nil
}

// Get is the allocation of exactly these slots; false if none is remembered.
func (a *Allocations) Get(slots []string) (name string, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name, ok = a.names[slotKey(slots)]
	return name, ok
}
