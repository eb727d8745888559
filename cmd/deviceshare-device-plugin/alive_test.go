// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

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
		"a release that hangs":                            {vitals{looked: now, owner: "uid", since: ago(longestRelease + time.Second)}, "release of owner uid hangs for 10m1s"},
		"a release that hangs before the devices do":      {vitals{owner: "uid", since: ago(time.Hour)}, "uid"},
		"a clock that was set back is no sign of trouble": {vitals{looked: ago(-time.Hour), owner: "uid", since: ago(-time.Hour)}, ""},
	}
	for name, c := range cases {
		err := hangs(now, c.vitals)
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
		r := newReleases()
		at := start
		for _, end := range c.ends {
			r.begin("uid", at)
			r.end("uid", end)
			at = at.Add(time.Minute)
		}
		r.begin("uid", at)
		r.begin("younger", at.Add(time.Second))
		if owner, since := r.oldest(); owner != "uid" || since.Sub(start) != c.want {
			t.Errorf("%s: %s hangs from %s, want %s", name, owner, since.Sub(start), c.want)
		}
		r.end("uid", nil)
		r.end("younger", nil)
		if owner, since := r.oldest(); !since.IsZero() {
			t.Errorf("%s: in the end %s hangs", name, owner)
		}
	}
}

func TestAReleaseThatHangsHoldsUpNoOtherPod(t *testing.T) {
	r := newReleases()
	ctx, cancel := context.WithCancel(context.Background())
	stuck, done, ended := make(chan struct{}), make(chan sharing.Owner, 1), make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.run(ctx, func(_ context.Context, o sharing.Owner) error {
			if o == "stuck" {
				<-stuck
				return nil
			}
			done <- o
			return nil
		})
	}()
	r.add("stuck")
	for owner := sharing.Owner(""); owner == ""; owner, _ = r.oldest() {
		time.Sleep(time.Millisecond)
	}
	r.add("other")
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("the other pod is not released")
	}
	if owner, _ := r.oldest(); owner != "stuck" && owner != "other" {
		t.Errorf("%q hangs", owner)
	}
	close(stuck)
	cancel()
	<-ended
}
