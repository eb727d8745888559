// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// errNotLeading is returned to who would write while another process may lead.
var errNotLeading = errors.New("this process does not lead: another scheduler may")

// Term is the time for which this process leads, as far as it knows: until one lease duration after
// the beginning of the last renewal that succeeded. Others count that duration from when they see
// the renewal, which is later. Safe for concurrent use.
type Term struct {
	// steady never goes back, and stands still while the machine is suspended. wall may be set, and
	// knows afterwards that it was suspended. What either says to be over is over: a wall clock
	// that was set forward costs the time until the next renewal.
	steady, wall clock.PassiveClock

	mu     sync.Mutex
	until  moment // zero before the first election
	over   bool
	writes sync.WaitGroup
}

// NewTerm returns the term of a process that was not elected yet.
func NewTerm(c clock.PassiveClock) *Term { return &Term{steady: c, wall: c} }

// moment is a time on both clocks.
type moment struct{ steady, wall time.Time }

// now is the time now. Round takes the reading of the steady clock off that of the other one.
func (t *Term) now() moment { return moment{t.steady.Now(), t.wall.Now().Round(0)} }

func (m moment) add(d time.Duration) moment { return moment{m.steady.Add(d), m.wall.Add(d)} }

// isBefore reports whether a time has not come by either clock.
func (m moment) isBefore(u moment) bool { return m.steady.Before(u.steady) && m.wall.Before(u.wall) }

// Begin is called before each write that only the leader may do. The write must be over at the time
// that it returns, and done must be called then.
func (t *Term) Begin() (until time.Time, done func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.isLeading() {
		return time.Time{}, nil, errNotLeading
	}
	t.writes.Add(1)
	return t.until.steady, t.writes.Done, nil
}

// isLeading reports whether no other process may lead now. The lock is held.
func (t *Term) isLeading() bool { return !t.over && t.now().isBefore(t.until) }

// extendTo notes that the lease is this process's until then.
func (t *Term) extendTo(until moment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if until.steady.After(t.until.steady) {
		t.until = until
	}
}

// mayRelease reports whether the lease is still this process's to give back.
func (t *Term) mayRelease() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now().isBefore(t.until)
}

// drainWrites lets no further write begin, and returns when those under way are over.
func (t *Term) drainWrites() {
	t.mu.Lock()
	t.over = true
	t.mu.Unlock()
	t.writes.Wait()
}
