// SPDX-License-Identifier: Apache-2.0

// Package liveness tells a scheduler that works from one that hangs. Volcano's health check says
// that the process answers; its sessions run in another goroutine. A scheduler whose session hangs
// renews its lease all the same, so that no other one takes over.
package liveness

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// DefaultLimit is how long one action of a session may take. Whole sessions of 5000 nodes take
// seconds (docs/scale.md), and a restart in the middle of a long one would begin it again.
const DefaultLimit = 10 * time.Minute

// Pulse is when the sessions last came a step further. Safe for concurrent use.
type Pulse struct {
	clock clock.PassiveClock
	limit time.Duration

	mu   sync.Mutex
	at   time.Time // zero before the first step
	step string
}

// NewPulse returns the pulse of sessions that have not begun. A limit of 0 is none.
func NewPulse(c clock.PassiveClock, limit time.Duration) *Pulse {
	return &Pulse{clock: c, limit: limit}
}

// Beat notes a step. It may be called on nil.
func (p *Pulse) Beat(step string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.step = p.clock.Now(), step
}

// Check returns an error if no step was made for the limit. Before the first one there is none: a
// scheduler that does not lead has no sessions, and one that starts waits for the API server, which
// a restart would not bring.
func (p *Pulse) Check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.IsZero() || p.limit <= 0 {
		return nil
	}
	if silent := p.clock.Since(p.at); silent >= p.limit {
		return fmt.Errorf("the scheduler's session hangs: nothing has happened for %s since %s", silent.Round(time.Second), p.step)
	}
	return nil
}
