// SPDX-License-Identifier: Apache-2.0

package liveness

import (
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestASessionMustComeAStepFurtherWithinTheLimit(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	p := NewPulse(now, DefaultLimit)
	pass := func(d time.Duration) { now.SetTime(now.Now().Add(d)) }
	pass(24 * time.Hour)
	if err := p.Check(); err != nil {
		t.Errorf("one that does not lead: %v", err)
	}
	for _, step := range []string{"action enqueue began", "action enqueue ended", "action allocate began"} {
		p.Beat(step)
		pass(DefaultLimit - time.Second)
		if err := p.Check(); err != nil {
			t.Errorf("a long session, in which something happens: %v", err)
		}
	}
	pass(time.Second)
	if err := p.Check(); err == nil || !strings.Contains(err.Error(), "for 10m0s since action allocate began") {
		t.Errorf("a session that hangs: %v", err)
	}
	p.Beat("action allocate ended")
	pass(-time.Hour)
	if err := p.Check(); err != nil {
		t.Errorf("after it went on, and the clock went back: %v", err)
	}
}

func TestNoLimitAndNoPulse(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	p := NewPulse(now, 0)
	p.Beat("action allocate began")
	now.SetTime(time.Unix(1_000_000, 0))
	if err := p.Check(); err != nil {
		t.Error(err)
	}
	(*Pulse)(nil).Beat("offline")
}
