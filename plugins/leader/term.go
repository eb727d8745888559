// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ErrNotLeading is returned to who would write while another process may lead.
var ErrNotLeading = errors.New("this process does not lead: another scheduler may")

// Term is the time for which this process leads, as far as it knows: until one lease duration after
// the beginning of the last renewal that succeeded. Others count that duration from when they see
// the renewal, which is later. Safe for concurrent use.
type Term struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	until  time.Time // zero before the first election
	over   bool
	writes sync.WaitGroup
}

// NewTerm returns the term of a process that was not elected yet.
func NewTerm(c clock.PassiveClock) *Term { return &Term{clock: c} }

// Begin is called before each write that only the leader may do. The write must be over at the time
// that it returns, and done must be called then.
func (t *Term) Begin() (until time.Time, done func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.leads() {
		return time.Time{}, nil, ErrNotLeading
	}
	t.writes.Add(1)
	return t.until, t.writes.Done, nil
}

// leads reports whether no other process may lead now. The lock is held.
func (t *Term) leads() bool { return !t.over && t.clock.Now().Before(t.until) }

// extend notes that the lease is this process's until then.
func (t *Term) extend(until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until.After(t.until) {
		t.until = until
	}
}

// mayRelease reports whether the lease is still this process's to give back.
func (t *Term) mayRelease() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.clock.Now().Before(t.until)
}

// end lets no further write begin, and returns when those under way are over.
func (t *Term) end() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.writes.Wait()
}
