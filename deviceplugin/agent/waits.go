// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// Waits tells for how long pods have waited for devices that take no pods. What a process saw is
// forgotten with it: the next one counts from its own first refusal. Safe for concurrent use.
type Waits struct {
	limit time.Duration
	clock clock.PassiveClock

	mu    sync.Mutex
	since map[sharing.Owner]time.Time
}

// NewWaits returns waits that are over after limit.
func NewWaits(limit time.Duration, c clock.PassiveClock) *Waits {
	return &Waits{limit: limit, clock: c, since: map[sharing.Owner]time.Time{}}
}

// IsOver notes that a pod waits and reports whether it has done so for the limit.
func (w *Waits) IsOver(o sharing.Owner) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	began, waits := w.since[o]
	if !waits {
		began = now
		w.since[o] = began
	}
	return now.Sub(began) >= w.limit
}

// End notes that a pod waits no more.
func (w *Waits) End(o sharing.Owner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.since, o)
}

// refuseUntilLimit is an error that may pass, and is *modes.Misplaced once the pod has waited for
// too long.
func (w *Waits) refuseUntilLimit(o sharing.Owner, why, hope string) error {
	if w.IsOver(o) {
		return &modes.Misplaced{Why: fmt.Sprintf("%s; the pod has waited for %s", why, w.limit)}
	}
	if hope != "" {
		why += "; " + hope
	}
	return errors.New(why)
}
