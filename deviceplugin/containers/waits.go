// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// waits tells for how long pods have waited for devices that take no pods. What a process saw is
// forgotten with it: the next one counts from its own first refusal. Safe for concurrent use.
type waits struct {
	limit time.Duration
	clock clock.PassiveClock

	mu    sync.Mutex
	since map[sharing.Owner]time.Time
}

func newWaits(limit time.Duration, c clock.PassiveClock) *waits {
	return &waits{limit: limit, clock: c, since: map[sharing.Owner]time.Time{}}
}

// isOver notes that a pod waits and reports whether it has done so for the limit.
func (w *waits) isOver(o sharing.Owner) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.clock.Now()
	began, isWaiting := w.since[o]
	if !isWaiting {
		began = now
		w.since[o] = began
	}
	return now.Sub(began) >= w.limit
}

func (w *waits) endWait(o sharing.Owner) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.since, o)
}

// refuseUntilLimit is an error that may pass, and is *modes.Misplaced once the pod has waited for
// too long.
func (w *waits) refuseUntilLimit(o sharing.Owner, why, hope string) error {
	if w.isOver(o) {
		return &modes.Misplaced{Why: fmt.Sprintf("%s; the pod has waited for %s", why, w.limit)}
	}
	if hope != "" {
		why += "; " + hope
	}
	return errors.New(why)
}
