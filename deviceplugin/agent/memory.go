// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/deviceplugin/cdi"
	"deviceshare/sharing/wire"
)

// memory is the latest allocation of each set of slots. Sets are replaced by any
// later set that shares a slot, so it never grows beyond the slots of the node.
// The zero value is empty.
type memory struct {
	mu  sync.Mutex
	ids map[string]string // slots, joined -> allocation id
}

func slotKey(slots []string) string { return strings.Join(slices.Sorted(slices.Values(slots)), ",") }

func (m *memory) put(slots []string, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ids == nil {
		m.ids = map[string]string{}
	}
	for key := range m.ids {
		if slices.ContainsFunc(strings.Split(key, ","), func(s string) bool { return slices.Contains(slots, s) }) {
			delete(m.ids, key)
		}
	}
	m.ids[slotKey(slots)] = id
}

func (m *memory) get(slots []string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	id, ok := m.ids[slotKey(slots)]
	return id, ok
}

// decided reports whether a scheduler left a decision on the pod.
func decided(pod *corev1.Pod) bool {
	return pod.Annotations[wire.PodPlacement] != "" || pod.Annotations[wire.PodAssigned] != ""
}

// allocationOf returns the one allocation id among CDI names; false if there is none.
func allocationOf(names []string) (id string, ok bool) {
	for _, name := range names {
		if id, ok = cdi.ID(name); ok {
			return id, true
		}
	}
	return "", false
}
