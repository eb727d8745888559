// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"testing"
	"time"
)

func TestARunGoesOnUntilItsKillsAreMadeItIsBrokenOrSomebodyHasSeenEnough(t *testing.T) {
	type world struct {
		enough, stopped bool
		kills           int
		broken          bool
	}
	for name, c := range map[string]struct {
		is        world
		goesOn    bool
		checksCan bool // what comes after the kills can still be done
	}{
		"kills are left":             {world{kills: 9}, true, true},
		"all kills are made":         {world{kills: 10}, false, true},
		"a promise was broken":       {world{broken: true}, false, true},
		"somebody has seen enough":   {world{enough: true}, false, true},
		"it is stopped":              {world{stopped: true}, false, false},
		"it is stopped after enough": {world{enough: true, stopped: true}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			enough, hadEnough := context.WithCancel(t.Context())
			ctx, stop := context.WithCancel(t.Context())
			defer hadEnough()
			defer stop()
			r := &run{Options: Options{Kills: 10, Enough: enough, Progress: func(string) {}}, history: NewHistory(time.Now)}
			if c.is.broken {
				r.violated(Violation{"pods", "one is gone"})
			}
			wanted, end := r.whileWanted(ctx)
			defer end()
			if c.is.enough {
				hadEnough()
				<-wanted.Done() // the hook runs in a goroutine
			}
			if c.is.stopped {
				stop()
			}
			if got := r.goesOn(wanted, c.is.kills); got != c.goesOn {
				t.Errorf("it goes on: %v, want %v", got, c.goesOn)
			}
			if got := ctx.Err() == nil; got != c.checksCan {
				t.Errorf("it can be checked at the end: %v, want %v", got, c.checksCan)
			}
		})
	}
}

func TestARunThatNobodyEndsGoesOn(t *testing.T) {
	r := &run{Options: Options{Kills: 1}}
	wanted, end := r.whileWanted(t.Context())
	defer end()
	if !r.goesOn(wanted, 0) {
		t.Error("it has ended")
	}
}

// A long pause before the next event does not hold an interrupt up.
func TestAPauseEndsWhenSomebodyHasSeenEnough(t *testing.T) {
	enough, hadEnough := context.WithCancel(t.Context())
	o := Options{Enough: enough}
	wanted, end := o.whileWanted(t.Context())
	defer end()
	hadEnough()
	done := make(chan struct{})
	go func() { pause(wanted, 24*time.Hour); close(done) }()
	select {
	case <-done:
	case <-time.After(10 * time.Minute):
		t.Error("it pauses on")
	}
}
