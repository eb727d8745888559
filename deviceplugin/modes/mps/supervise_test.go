// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"deviceshare/deviceplugin/host"
)

// supervised runs the supervisor for the length of a test.
func supervised(t *testing.T, h *fakeHost) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	p := h.fresh()
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// told waits for what the supervisor tells.
func told(t *testing.T, h *fakeHost) Restart {
	t.Helper()
	select {
	case r := <-h.restarts:
		return r
	case <-time.After(10 * time.Minute):
		t.Fatal("nothing is told")
		return Restart{}
	}
}

func TestADaemonThatDiesIsStartedAgainAndToldAbout(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	supervised(t, h)
	h.kill("GPU-a")
	if r := told(t, h); r.Device != "GPU-a" || r.Err != nil {
		t.Errorf("told %+v", r)
	}
	if d := h.daemonOf("GPU-a"); d == nil || d.memory != "81920M" {
		t.Errorf("the new daemon is %+v, want one with the defaults", d)
	}
}

func TestHowADaemonEndedIsToldOnce(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	h.ended = map[int]string{h.daemonOf("GPU-a").pid: "it was killed"}
	supervised(t, h)
	for _, want := range []string{"it was killed", ""} {
		h.kill("GPU-a")
		if r := told(t, h); r.How != want {
			t.Errorf("told %+v, want %q", r, want)
		}
	}
}

func TestADaemonThatEndsWhileNoContainerHasItsDeviceIsNoNews(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	p := h.fresh()
	if err := p.Unprepare(context.Background(), "uid"); err != nil {
		t.Fatal(err)
	}
	h.kill("GPU-a")
	h.noStart = errors.New("the keeper is being replaced")
	for range 2 {
		if died, err := p.reviveDaemon(context.Background(), "GPU-a", &watch{}); died || err != nil {
			t.Errorf("died %v, %v", died, err)
		}
	}
	h.noStart = nil
	inject(t, h, asks("uid-2", "main"))
	if d := h.daemonOf("GPU-a"); d == nil || d.memory != "81920M" || len(h.restarts) > 0 {
		t.Errorf("the next container's daemon is %+v, and %d were told", d, len(h.restarts))
	}
}

func TestADaemonThatDiedWhileNobodyWatchedIsFoundAtTheStart(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	h.kill("GPU-a")
	supervised(t, h)
	if r := told(t, h); r.Err != nil {
		t.Errorf("told %+v", r)
	}
}

func TestADaemonThatAContainersStartRevivesIsToldAboutToo(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid-1", "main"))
	h.kill("GPU-a")
	inject(t, h, asks("uid-2", "main"))
	if r := told(t, h); r.Err != nil || r.Device != "GPU-a" {
		t.Errorf("told %+v", r)
	}
}

func TestADaemonThatDoesNotStartIsTriedAgainAndToldAboutOnce(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	h.mu.Lock()
	h.noStart = errors.New("no memory")
	h.mu.Unlock()
	supervised(t, h)
	h.kill("GPU-a")
	if r := told(t, h); r.Err == nil {
		t.Errorf("told %+v, want why it does not start", r)
	}
	h.mu.Lock()
	h.noStart = nil
	h.mu.Unlock()
	if r := told(t, h); r.Err != nil {
		t.Errorf("told %+v, want that it runs again", r)
	}
}

func TestADaemonThatWasNeverNeededOrIsNoLongerIsNotStarted(t *testing.T) {
	h := newHost(t)
	p := h.fresh()
	if err := p.Enter(context.Background(), gpu()); err != nil {
		t.Fatal(err)
	}
	if ids := p.wantedDevices(); len(ids) != 0 {
		t.Errorf("before the first container %v are wanted", ids)
	}
	inject(t, h, asks("uid", "main"))
	if ids := p.wantedDevices(); len(ids) != 1 {
		t.Errorf("with a container %v are wanted", ids)
	}
	if err := p.Leave(context.Background(), gpu()); err != nil {
		t.Fatal(err)
	}
	if ids := p.wantedDevices(); len(ids) != 0 {
		t.Errorf("in another mode %v are wanted", ids)
	}
}

func TestADaemonThatWasStartedAndNotConfiguredIsConfiguredLater(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	h.kill("GPU-a")
	h.mute = errors.New("it is busy")
	if died, err := h.fresh().reviveDaemon(context.Background(), "GPU-a", &watch{}); !died || err == nil {
		t.Fatalf("revived: died %v, %v", died, err)
	}
	h.mute = nil
	if died, err := h.fresh().reviveDaemon(context.Background(), "GPU-a", &watch{}); died || err != nil {
		t.Errorf("revived again: died %v, %v", died, err)
	}
	if d := h.daemonOf("GPU-a"); d.memory != "81920M" {
		t.Errorf("the daemon is %+v, want one with the defaults", d)
	}
}

func TestADaemonWithOtherOptionsIsLeftToTheNextContainer(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	h.multiUser = true
	if died, err := h.fresh().reviveDaemon(context.Background(), "GPU-a", &watch{}); died || err != nil || h.starts != 1 {
		t.Errorf("died %v, %v, %d starts", died, err, h.starts)
	}
}

func TestADaemonThatDoesNotAnswerIsEndedAndStartedAnew(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	p, w, before := h.fresh(), &watch{}, h.daemonOf("GPU-a").pid
	h.mute = errors.New("Cannot find MPS control daemon process")
	for i := range silentMost {
		if i == silentMost-1 {
			h.muteOnly = before
		}
		w.ask = time.Time{}
		died, err := p.reviveDaemon(context.Background(), "GPU-a", w)
		if last := i == silentMost-1; died != last || err != nil {
			t.Errorf("asked %d times: died %v, %v", i+1, died, err)
		}
	}
	if d := h.daemonOf("GPU-a"); d == nil || d.pid == before || d.memory != "81920M" {
		t.Errorf("the daemon is %+v, want another one with the defaults", d)
	}
}

func TestADaemonThatCannotBeAskedIsLeftAlone(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	p, w, before := h.fresh(), &watch{}, h.daemonOf("GPU-a").pid
	h.mute = fmt.Errorf("%w: no such file", ErrNotAsked)
	for range 3 * silentMost {
		w.ask = time.Time{}
		if died, err := p.reviveDaemon(context.Background(), "GPU-a", w); died || err != nil {
			t.Fatalf("died %v, %v", died, err)
		}
	}
	if d := h.daemonOf("GPU-a"); d == nil || d.pid != before {
		t.Errorf("the daemon is %+v, want the one before with its clients", d)
	}
}

func TestADaemonFromBeforeThereWereLimitsIsNotHiddenByThem(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	p := h.fresh()
	d := p.daemonFor("GPU-a")
	h.bounds = map[string]host.Bound{}
	if err := os.WriteFile(d.startedFile(), fmt.Appendf(nil, "pid %d\n", h.daemonOf("GPU-a").pid), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.Enter(context.Background(), gpu()); err != nil || len(h.bounds) != 0 {
		t.Errorf("limits %v under a daemon that lives, %v", h.bounds, err)
	}
	h.kill("GPU-a")
	if err := p.Enter(context.Background(), gpu()); err != nil || len(h.bounds) != 2 {
		t.Errorf("limits %v without a daemon, %v", h.bounds, err)
	}
}

func TestADaemonThatAnswersInBetweenIsLeftAlone(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	p, w := h.fresh(), &watch{}
	for range 3 * silentMost {
		for _, h.mute = range []error{errors.New("it is busy"), errors.New("it is busy"), nil} {
			w.ask = time.Time{}
			if died, err := p.reviveDaemon(context.Background(), "GPU-a", w); died || err != nil {
				t.Fatalf("died %v, %v", died, err)
			}
		}
	}
	if h.starts != 1 {
		t.Errorf("%d starts", h.starts)
	}
}

func TestADaemonIsNotEndedBecauseThePluginEnds(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	h.mute = context.Canceled
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	p, w := h.fresh(), &watch{}
	for range 2 * silentMost {
		w.ask = time.Time{}
		_, _ = p.reviveDaemon(ctx, "GPU-a", w)
	}
	if err := p.Leave(ctx, gpu()); err == nil || h.daemonOf("GPU-a") == nil {
		t.Errorf("the daemon was ended (%v)", err)
	}
}

func TestADeviceWhoseDaemonDoesNotAnswerLeavesTheMode(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	h.mute = errors.New("Cannot find MPS control daemon process")
	if err := h.fresh().Leave(context.Background(), gpu()); err != nil || h.daemonOf("GPU-a") != nil {
		t.Errorf("leaving: %v", err)
	}
}

func TestARecordThatWasNotFinishedIsNoDevice(t *testing.T) {
	h := newHost(t)
	inject(t, h, asks("uid", "main"))
	path := h.fresh().devicePath("GPU-a")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(filepath.Dir(path), host.Unfinished("GPU-a")+"123")
	if err := os.WriteFile(left, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if ids := h.fresh().wantedDevices(); len(ids) != 1 || ids[0] != "GPU-a" {
		t.Errorf("%v are wanted", ids)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := h.fresh().Run(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) || h.starts != 1 {
		t.Errorf("it is still there (%v), %d starts", err, h.starts)
	}
}
