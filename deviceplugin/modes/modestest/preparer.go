// SPDX-License-Identifier: Apache-2.0

// Package modestest is the suite that every modes.Preparer must pass. The preparer under
// test does its effects through an interface that the suite can intercept. So the suite can
// stop it before and after each effect.
package modestest

import (
	"context"
	"reflect"
	"sync"
	"testing"

	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// Host is one host, over which preparers of one mode can be made again and again,
// as a process that restarts does.
type Host interface {
	// Preparer returns a fresh preparer. With at >= 0 it dies at that effect: late
	// says whether the effect still happens.
	Preparer(at int, late bool) modes.Preparer
	// Effects is how many effects the latest preparer had.
	Effects() int
	// State describes everything on the host that containers can see or that
	// must be removed one day. Equal states are equal texts.
	State() string
}

// Preparer runs the suite. host makes an empty host; claim makes the claim of a
// container of an owner.
func Preparer(t *testing.T, host func(t *testing.T) Host, claim func(o sharing.Owner, container string) modes.Claim) {
	t.Helper()
	ctx := context.Background()
	t.Run("the same claim gives the same injection", func(t *testing.T) { same(ctx, t, host(t), claim) })
	t.Run("a crash at any effect of preparing is repaired by preparing again", func(t *testing.T) { crashes(ctx, t, host, claim) })
	t.Run("a crash at any effect of removing is repaired by removing again", func(t *testing.T) { removals(ctx, t, host, claim) })
	t.Run("a reboot at any effect of preparing is repaired by preparing again", func(t *testing.T) { reboots(ctx, t, host, claim) })
	t.Run("removing one owner leaves the others alone", func(t *testing.T) { others(ctx, t, host(t), claim) })
	t.Run("an owner that has nothing is removed without complaint", func(t *testing.T) {
		if err := host(t).Preparer(-1, false).Unprepare(ctx, "nobody"); err != nil {
			t.Error(err)
		}
	})
	t.Run("a claim of another mode is refused", func(t *testing.T) { otherMode(ctx, t, host(t), claim) })
	t.Run("different claims are prepared at the same time", func(t *testing.T) { together(ctx, t, host(t), claim) })
}

func prepare(ctx context.Context, t *testing.T, p modes.Preparer, c modes.Claim) modes.Injection {
	t.Helper()
	in, err := p.Prepare(ctx, c)
	if err != nil {
		t.Fatalf("prepare: %v", err)
	}
	return in
}

func same(ctx context.Context, t *testing.T, h Host, claim func(sharing.Owner, string) modes.Claim) {
	c := claim("owner-1", "main")
	first := prepare(ctx, t, h.Preparer(-1, false), c)
	state := h.State()
	again := prepare(ctx, t, h.Preparer(-1, false), c)
	if !reflect.DeepEqual(first, again) {
		t.Errorf("first %+v, then %+v", first, again)
	}
	if now := h.State(); now != state {
		t.Errorf("the host changed from\n%s\nto\n%s", state, now)
	}
	if len(first.Devices) != len(c.Devices) {
		t.Errorf("%d devices are injected for a claim of %d", len(first.Devices), len(c.Devices))
	}
}

func crashes(ctx context.Context, t *testing.T, host func(*testing.T) Host, claim func(sharing.Owner, string) modes.Claim) {
	c := claim("owner-1", "main")
	clean := host(t)
	prepare(ctx, t, clean.Preparer(-1, false), c)
	total, state := clean.Effects(), clean.State()
	for _, late := range []bool{false, true} {
		for at := range total {
			h := host(t)
			if _, err := h.Preparer(at, late).Prepare(ctx, c); err == nil {
				t.Errorf("effect %d (late %v): the crash was not noticed", at, late)
			}
			prepare(ctx, t, h.Preparer(-1, false), c)
			if got := h.State(); got != state {
				t.Errorf("effect %d (late %v): after the repair the host is\n%s\nwant\n%s", at, late, got, state)
			}
		}
	}
}

func removals(ctx context.Context, t *testing.T, host func(*testing.T) Host, claim func(sharing.Owner, string) modes.Claim) {
	c := claim("owner-1", "main")
	fill := func(t *testing.T) Host {
		h := host(t)
		prepare(ctx, t, h.Preparer(-1, false), c)
		prepare(ctx, t, h.Preparer(-1, false), claim("owner-1", "second"))
		return h
	}
	clean := fill(t)
	if err := clean.Preparer(-1, false).Unprepare(ctx, c.Owner); err != nil {
		t.Fatal(err)
	}
	total, state := clean.Effects(), clean.State()
	for _, late := range []bool{false, true} {
		for at := range total {
			h := fill(t)
			if err := h.Preparer(at, late).Unprepare(ctx, c.Owner); err == nil {
				t.Errorf("effect %d (late %v): the crash was not noticed", at, late)
			}
			if err := h.Preparer(-1, false).Unprepare(ctx, c.Owner); err != nil {
				t.Errorf("effect %d (late %v): the repair fails: %v", at, late, err)
			}
			if got := h.State(); got != state {
				t.Errorf("effect %d (late %v): after the repair the host is\n%s\nwant\n%s", at, late, got, state)
			}
		}
	}
}

func others(ctx context.Context, t *testing.T, h Host, claim func(sharing.Owner, string) modes.Claim) {
	stays := claim("owner-1", "main")
	prepare(ctx, t, h.Preparer(-1, false), stays)
	before := h.State()
	prepare(ctx, t, h.Preparer(-1, false), claim("owner-10", "main"))
	if err := h.Preparer(-1, false).Unprepare(ctx, "owner-10"); err != nil {
		t.Fatal(err)
	}
	if got := h.State(); got != before {
		t.Errorf("the host is\n%s\nwant\n%s", got, before)
	}
}

func otherMode(ctx context.Context, t *testing.T, h Host, claim func(sharing.Owner, string) modes.Claim) {
	c := claim("owner-1", "main")
	before := h.State()
	for i := range c.Devices {
		c.Devices[i].Share.Mode = "something-else"
	}
	if _, err := h.Preparer(-1, false).Prepare(ctx, c); err == nil {
		t.Error("it was prepared")
	}
	if got := h.State(); got != before {
		t.Errorf("the refusal left\n%s", got)
	}
}

func together(ctx context.Context, t *testing.T, h Host, claim func(sharing.Owner, string) modes.Claim) {
	p := h.Preparer(-1, false)
	var wait sync.WaitGroup
	for _, owner := range []sharing.Owner{"a", "b", "c", "d", "e", "f", "g", "h"} {
		wait.Go(func() {
			if _, err := p.Prepare(ctx, claim(owner, "main")); err != nil {
				t.Errorf("owner %s: %v", owner, err)
			}
			if err := p.Unprepare(ctx, owner); err != nil {
				t.Errorf("owner %s: %v", owner, err)
			}
		})
	}
	wait.Wait()
}
