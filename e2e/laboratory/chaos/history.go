// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// shown is how many of the last events a failure shows.
const shown = 50

// History is what has happened. It is safe for concurrent use.
type History struct {
	begin time.Time
	now   func() time.Time

	mu     sync.Mutex
	last   []string       // at most shown
	counts map[string]int // by kind
}

// NewHistory begins a history; now tells the time.
func NewHistory(now func() time.Time) *History {
	return &History{begin: now(), now: now, counts: map[string]int{}}
}

// Note adds a line.
func (h *History) Note(text string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.last) == shown {
		h.last = h.last[1:]
	}
	h.last = append(h.last, fmt.Sprintf("%8.1f s  ", h.now().Sub(h.begin).Seconds())+fmt.Sprintf(text, args...))
}

// Count counts something of a kind.
func (h *History) Count(kind string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.counts[kind]++
}

// Of is how often something of a kind was counted.
func (h *History) Of(kind string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.counts[kind]
}

// Last are the last lines.
func (h *History) Last() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.last, "\n")
}

// Counts are all counts, one line each, by name.
func (h *History) Counts() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(h.counts)) {
		fmt.Fprintf(&out, "%8d  %s\n", h.counts[kind], kind)
	}
	return out.String()
}
