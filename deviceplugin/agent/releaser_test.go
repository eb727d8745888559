// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

func TestOnlyWhatHangsForLongMakesThePluginUnwell(t *testing.T) {
	now := time.Unix(100000, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	cases := map[string]struct {
		vitals vitals
		want   string // "" is well
	}{
		"nothing has begun":                               {vitals{}, ""},
		"the devices were just looked at":                 {vitals{looked: ago(time.Second)}, ""},
		"a slow driver":                                   {vitals{looked: ago(longestSilence)}, ""},
		"a driver that does not return":                   {vitals{looked: ago(longestSilence + time.Second)}, "not been looked at for 5m1s"},
		"a loop that rests for long by its settings":      {vitals{looked: ago(longestSilence + time.Minute), pause: time.Hour}, ""},
		"a release under way":                             {vitals{looked: now, owner: "uid", since: ago(longestRelease)}, ""},
		"a release that hangs":                            {vitals{looked: now, owner: "uid", since: ago(longestRelease + time.Second)}, "release of a pod's devices hangs for 10m1s"},
		"a release that hangs before the devices do":      {vitals{owner: "uid", since: ago(time.Hour)}, "hangs for 1h0m0s"},
		"a clock that was set back is no sign of trouble": {vitals{looked: ago(-time.Hour), owner: "uid", since: ago(-time.Hour)}, ""},
	}
	for name, c := range cases {
		err := findHang(now, c.vitals)
		if (err == nil) != (c.want == "") || !strings.Contains(fmt.Sprint(err), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

func TestAReleaseHangsFromItsFirstAttemptUntilOneReturnsInTime(t *testing.T) {
	start := time.Unix(1000, 0)
	late := fmt.Errorf("wait: %w", context.DeadlineExceeded)
	cases := map[string]struct {
		ends []error // of the attempts, one a minute; the last is under way
		want time.Duration
	}{
		"the first attempt":                       {nil, 0},
		"attempts that ran out of time are one":   {[]error{late, late}, 0},
		"a failure that says why begins it anew":  {[]error{late, errors.New("a process runs there")}, 2 * time.Minute},
		"and so does a success, for another time": {[]error{nil, late}, time.Minute},
	}
	for name, c := range cases {
		a := New(node.Config{Node: "n"}, nil)
		r := NewReleaser(a, nil)
		begins := func(o sharing.Owner, at time.Time) { // at which the next attempt is due
			a.Send(node.OwnerGone{Owner: o})
			r.startDueAttempts(at, func(sharing.Owner) {})
		}
		at := start
		for _, end := range c.ends {
			begins("uid", at)
			r.finishAttempt("uid", end, at)
			at = at.Add(time.Minute)
		}
		begins("uid", at)
		begins("younger", at.Add(time.Second))
		if owner, since := r.longestHanging(); owner != "uid" || since.Sub(start) != c.want {
			t.Errorf("%s: %s hangs from %s, want %s", name, owner, since.Sub(start), c.want)
		}
		r.finishAttempt("uid", nil, at)
		r.finishAttempt("younger", nil, at)
		if owner, since := r.longestHanging(); !since.IsZero() {
			t.Errorf("%s: in the end %s hangs", name, owner)
		}
	}
}

// releaseFunc is releasing, by a function.
type releaseFunc func(context.Context, sharing.Owner) error

func (f releaseFunc) Release(ctx context.Context, o sharing.Owner) error { return f(ctx, o) }

func TestAReleaseThatHangsHoldsUpNoOtherPod(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	stuck, done, ended := make(chan struct{}), make(chan sharing.Owner, 1), make(chan struct{})
	r := NewReleaser(New(node.Config{Node: "n"}, nil), releaseFunc(func(_ context.Context, o sharing.Owner) error {
		if o == "stuck" {
			<-stuck
			return nil
		}
		done <- o
		return nil
	}))
	go func() { defer close(ended); _ = r.Run(ctx) }()
	r.Gone("stuck")
	for owner := sharing.Owner(""); owner == ""; owner, _ = r.longestHanging() {
		time.Sleep(time.Millisecond)
	}
	r.Gone("other")
	select {
	case <-done:
	case <-time.After(10 * time.Minute):
		t.Error("the other pod is not released")
	}
	if owner, _ := r.longestHanging(); owner != "stuck" && owner != "other" {
		t.Errorf("%q hangs", owner)
	}
	close(stuck)
	cancel()
	<-ended
}

func TestAReleaseThatFailsIsRepeatedAndHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex
		times := map[sharing.Owner][]time.Duration{}
		a := New(node.Config{Node: "n"}, nil)
		r := NewReleaser(a, releaseFunc(func(_ context.Context, o sharing.Owner) error {
			mu.Lock()
			defer mu.Unlock()
			times[o] = append(times[o], time.Since(begin))
			if o == "fails" && len(times[o]) < 4 {
				return errors.New("a process runs there")
			}
			return nil
		}))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = r.Run(ctx) }()
		r.Gone("fails")
		r.Gone("other")
		time.Sleep(time.Minute)
		cancel()
		<-ended
		if got := fmt.Sprint(times["fails"], times["other"]); got != "[0s 1s 3s 7s] [0s]" {
			t.Errorf("attempts at %s", got)
		}
		if steps := node.Plan(a.State()); len(steps) != 0 {
			t.Errorf("in the end %v is to be done", steps)
		}
	})
}

func TestAReleaseThatHangsIsNotBegunTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck, begun := make(chan struct{}), 0
		r := NewReleaser(New(node.Config{Node: "n"}, nil), releaseFunc(func(ctx context.Context, _ sharing.Owner) error {
			begun++
			if begun == 1 {
				<-stuck // it does not heed its context
				return ctx.Err()
			}
			return nil
		}))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); _ = r.Run(ctx) }()
		r.Gone("uid")
		time.Sleep(10 * time.Minute)
		r.Gone("uid")
		synctest.Wait()
		if _, since := r.longestHanging(); begun != 1 || time.Since(since) != 10*time.Minute {
			t.Errorf("%d attempts, it hangs since %s", begun, time.Since(since))
		}
		close(stuck)
		time.Sleep(time.Minute)
		if _, since := r.longestHanging(); begun != 2 || !since.IsZero() {
			t.Errorf("afterwards %d attempts, hangs: %v", begun, !since.IsZero())
		}
		cancel()
		<-ended
	})
}
