// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"deviceshare/sharing"
)

// Every change of every pair of modes, with the process killed before and after
// each of its effects: the next process finishes it.
func TestAProcessThatDiesBetweenAnyTwoEffectsIsFinishedByTheNext(t *testing.T) {
	kills := 0
	for _, from := range sharing.Modes() {
		for _, to := range sharing.Modes() {
			for at := 1; ; at++ {
				name := fmt.Sprintf("%s to %s, killed at %d", from, to, at)
				died := false
				t.Run(name, func(t *testing.T) { died = killAt(t, from, to, at) })
				if !died {
					break
				}
				kills++
			}
		}
	}
	if kills < 20 {
		t.Errorf("only %d kills: the test shows next to nothing", kills)
	}
}

// killAt reports whether there was an effect to be killed at.
func killAt(t *testing.T, from, to sharing.Mode, at int) bool {
	b := newBench(t, one(from))
	b.entered[gpu][from] = from == migMode || from == mpsMode
	effects, died := 0, make(chan struct{})
	b.killed = func() {
		if effects++; effects == at {
			close(died)
			// A killed process does nothing any more: nothing after this point of
			// the goroutine runs.
			runtime.Goexit()
		}
	}
	b.wanted[gpu] = to
	b.startUnlooked()
	killed := false
	select {
	case <-died:
		killed = true
	case <-b.mover.looked:
	}
	b.stop()
	b.killed = nil
	b.start()
	b.await("the end of the change", b.ready(gpu, to))
	return killed
}

func TestADeviceThatGoesAwayAfterAFailureIsNotLookedForInALoop(t *testing.T) {
	b := newBench(t, one(migMode))
	b.fails["enter mig"] = errors.New("no")
	b.start()
	b.await("the reason", func() bool { return strings.Contains(b.shown(gpu).why, "no") })
	b.set(func() { delete(b.fails, "enter mig") })
	b.want(gpu, "")                   // it is not offered
	time.Sleep(10 * time.Millisecond) // what is under way ends
	before, since := 0, time.Now()
	b.set(func() { before = b.asked })
	time.Sleep(50 * time.Millisecond)
	b.set(func() {
		took := time.Since(since)
		if n := b.asked - before; float64(n)/took.Seconds() > 600 {
			t.Errorf("asked %d times in %s", n, took)
		}
	})
	b.want(gpu, migMode)
	b.await("mig when it is back", b.ready(gpu, migMode))
}
