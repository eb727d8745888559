// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shell is a component that runs a shell script.
func shell(t *testing.T, name, script string) component {
	t.Helper()
	return component{name: name, path: "/bin/sh", args: []string{"-c", script}, log: filepath.Join(t.TempDir(), name+".log")}
}

func newTestSupervisor(t *testing.T, restart bool) *supervisor {
	t.Helper()
	s := newSupervisor(newThread(), filepath.Join(t.TempDir(), "status.json"), restart)
	t.Cleanup(func() {
		for _, p := range s.procs {
			_ = p.stop(t.Context())
		}
		s.settle()
	})
	return s
}

func mustAdd(t *testing.T, s *supervisor, c component) *process {
	t.Helper()
	if err := s.add(c); err != nil {
		t.Fatal(err)
	}
	p, err := s.find(c.name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// eventually waits for a condition that other goroutines bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never happened: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestKilledComponentIsStartedAgainAndAStoppedOneIsNot(t *testing.T) {
	s := newTestSupervisor(t, true)
	p := mustAdd(t, s, shell(t, "worker", "exec sleep 1000"))
	if err := p.kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a second life", func() bool { st := p.status(); return st.Starts == 2 && st.PID != 0 })
	if last := p.status().LastExit; !strings.Contains(last, "killed") {
		t.Errorf("the last exit is %q, want it to say killed", last)
	}
	_ = p.stop(t.Context())
	if !p.dead() {
		t.Error("a stopped component is not dead")
	}
	if err := p.kill(t.Context()); err == nil {
		t.Error("killing a stopped component is no error")
	}
}

func TestStopDuringTheRestartDelayHolds(t *testing.T) {
	s := newTestSupervisor(t, true)
	p := mustAdd(t, s, shell(t, "worker", "exec sleep 1000"))
	if err := p.kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = p.stop(t.Context())
	if err := p.revive(); err != nil {
		t.Fatal(err)
	}
	if st := p.status(); st.PID != 0 || st.Starts != 1 {
		t.Errorf("it came back: %+v", st)
	}
}

func TestComponentThatIgnoresSIGTERMIsKilledAfterItsGrace(t *testing.T) {
	s := newTestSupervisor(t, false)
	c := shell(t, "deaf", "trap '' TERM; echo up; while :; do sleep 0.05; done")
	c.grace = 50 * time.Millisecond
	p := mustAdd(t, s, c)
	eventually(t, "the trap is set", func() bool { text, _ := os.ReadFile(c.log); return strings.Contains(string(text), "\nup") })
	_ = p.stop(t.Context())
	if st := p.status(); st.PID != 0 || !strings.Contains(st.LastExit, "killed") {
		t.Errorf("after stop: %+v", st)
	}
}

func TestWaitingForABrokenComponentEndsEarlyWithItsLog(t *testing.T) {
	for name, restart := range map[string]bool{"that is not restarted": false, "that keeps dying": true} {
		t.Run(name, func(t *testing.T) {
			s := newTestSupervisor(t, restart)
			c := shell(t, "broken", "echo cannot read the frobnicator >&2; exit 3")
			c.ready = func(context.Context) error { return errors.New("no answer") }
			err := mustAdd(t, s, c).waitReady(t.Context())
			if err == nil || !strings.Contains(err.Error(), "frobnicator") || !strings.Contains(err.Error(), "exit status 3") {
				t.Errorf("got %v, want the exit status and the end of the log", err)
			}
		})
	}
}

func TestWaitingEndsWithTheContextAndTheLastAnswer(t *testing.T) {
	s := newTestSupervisor(t, true)
	c := shell(t, "slow", "exec sleep 1000")
	asked := make(chan struct{}, 1000)
	c.ready = func(context.Context) error { asked <- struct{}{}; return errors.New("still warming up") }
	p := mustAdd(t, s, c)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if err := p.waitReady(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "still warming up") {
		t.Errorf("got %v", err)
	}
}

func TestUnknownComponentIsAnsweredWithTheNamesThereAre(t *testing.T) {
	s := newTestSupervisor(t, true)
	mustAdd(t, s, shell(t, "one", "exec sleep 1000"))
	if _, err := s.find("two"); err == nil || !strings.Contains(err.Error(), "it has one") {
		t.Errorf("got %v", err)
	}
}

func TestStatusFileFollowsTheComponents(t *testing.T) {
	s := newTestSupervisor(t, false)
	p := mustAdd(t, s, shell(t, "worker", "exec sleep 1000"))
	read := func() (ComponentStatus, bool) {
		var all []ComponentStatus
		text, _ := os.ReadFile(s.statusFile)
		if json.Unmarshal(text, &all) != nil || len(all) != 1 {
			return ComponentStatus{}, false
		}
		return all[0], true
	}
	eventually(t, "the file shows it running", func() bool { st, ok := read(); return ok && st.PID == p.status().PID })
	_ = p.stop(t.Context())
	eventually(t, "the file shows it stopped", func() bool { st, ok := read(); return ok && st.PID == 0 })
}

func TestRestartDelayGrowsAndIsForgottenAfterALongLife(t *testing.T) {
	d := time.Duration(0)
	for _, want := range []time.Duration{200, 400, 800, 1600, 3200, 5000, 5000} {
		if d = nextDelay(d, time.Second); d != want*time.Millisecond {
			t.Fatalf("delay %s, want %d ms", d, want)
		}
	}
	if d = nextDelay(d, time.Minute); d != restartFirst {
		t.Errorf("after a long life the delay is %s, want %s", d, restartFirst)
	}
}

func TestLogTailShowsTheEndOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.log")
	text := strings.Repeat("early\n", 100) + strings.Repeat("w", 10000) + "\nlast\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got := logTail(path)
	if !strings.HasSuffix(got, "last") || len(got) > 2000 || strings.Count(got, "early") != tailLines-2 {
		t.Errorf("tail of %d bytes:\n%s", len(got), got)
	}
}

func TestAFrozenComponentDoesNothingUntilItIsThawed(t *testing.T) {
	s := newTestSupervisor(t, true)
	ticks := filepath.Join(t.TempDir(), "ticks")
	mustAdd(t, s, shell(t, "worker", "while :; do echo tick >> "+ticks+"; sleep 0.01; done"))
	count := func() int { text, _ := os.ReadFile(ticks); return strings.Count(string(text), "tick") }
	eventually(t, "the component works", func() bool { return count() > 0 })
	c := &Cluster{sup: s}
	thaw, err := c.Freeze("worker")
	if err != nil {
		t.Fatal(err)
	}
	before := 0
	eventually(t, "it does nothing", func() bool {
		before = count()
		time.Sleep(200 * time.Millisecond)
		return count() == before
	})
	if err := thaw(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it works again", func() bool { return count() > before })
	if _, err := c.Freeze("nobody"); err == nil {
		t.Error("a component that does not exist was frozen")
	}
}
