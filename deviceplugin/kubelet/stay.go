// SPDX-License-Identifier: Apache-2.0

package kubelet

import "time"

// registrar is who a Server registers with.
type registrar string

const (
	theKubelet registrar = "kubelet"
	theKeeper  registrar = "keeper" // a Proxy
)

// MoveTimes say when a Server that may have a keeper registers with it, and when with the kubelet.
type MoveTimes struct {
	// Patience is for how long the keeper may take our registration badly or not at all, before
	// we register with the kubelet ourselves.
	Patience time.Duration
	// Steady is for how long a keeper must have answered before we go back to it. It doubles with
	// every attempt that fails, up to a hundred times as long.
	Steady time.Duration
	// Leave is how long we stay registered with the kubelet after Taken has become false, so that a
	// pod that is just being bound is still admitted.
	Leave time.Duration
}

// DefaultMoveTimes are those of a usual node.
func DefaultMoveTimes() MoveTimes {
	return MoveTimes{Patience: 5 * time.Second, Steady: 5 * time.Second, Leave: 2 * time.Second}
}

// stay is who a Server is to be registered with, and what it has seen of the keeper since then. It
// is immutable: afterLook returns what follows from another look.
//
//	           no steady keeper for Patience
//	keeper ─────────────────────────────────────► kubelet
//	       ◄─────────────────────────────────────
//	           a keeper that answered all the time for Steady
//
// A keeper counts as steady after it has done its part for Steady without a break: one that is
// started again and again never does, however soon it is back each time.
type stay struct {
	with   registrar
	here   bool      // the latest look found the keeper doing its part
	since  time.Time // when here became what it is
	good   time.Time // when the keeper was last seen to be steady, else when the stay began
	failed int       // stays at a keeper that was not steady, one after the other
}

// firstStay is with the keeper: it may be a moment later than we.
func firstStay(now time.Time) stay { return stay{with: theKeeper, since: now, good: now} }

// restartedAt is the stay from the moment at which we come to register there.
func (s stay) restartedAt(now time.Time) stay {
	return stay{with: s.with, since: now, good: now, failed: s.failed}
}

// afterLook takes in whether the keeper does its part: it answers and, where we are registered with
// it, it reads our list.
func (s stay) afterLook(here bool, now time.Time, t MoveTimes) stay {
	if here != s.here {
		s.here, s.since = here, now
	}
	isSteady := here && now.Sub(s.since) >= s.steadyPeriod(t)
	switch {
	case s.with == theKubelet && isSteady:
		s.with = theKeeper
		return s.restartedAt(now)
	case s.with == theKubelet:
		return s
	case isSteady:
		s.good, s.failed = now, 0
	case !here && now.Sub(s.good) >= t.Patience:
		s.with, s.failed = theKubelet, s.failed+1
		return s.restartedAt(now)
	}
	return s
}

// steadyPeriod is for how long the keeper must do its part to be trusted.
func (s stay) steadyPeriod(t MoveTimes) time.Duration {
	const most = 100
	if s.with == theKeeper || s.failed <= 1 {
		return t.Steady
	}
	return t.Steady * time.Duration(min(most, 1<<min(s.failed-1, 10)))
}
