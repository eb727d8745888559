// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"deviceshare/deviceplugin/kubelet"
)

// mainVariable makes this program the product, with the arguments that it is given.
const mainVariable = "DEVICESHARE_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// keep starts a keeper as a process of its own.
func (p *program) keep(o *options) *exec.Cmd {
	p.t.Helper()
	state := filepath.Dir(o.places.Keeper)
	cmd := exec.Command(os.Args[0], "keep", "--kubelet-dir="+p.kubelet.Directory, "--keeper-dir="+o.places.Keeper,
		"--mps-keeper-socket="+filepath.Join(state, "mps.sock"), "--mps-root="+filepath.Join(state, "mps"))
	cmd.Env = append(os.Environ(), mainVariable+"=yes")
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// The keeper is killed and frozen under the whole program, and comes back. Pods go on starting,
// and a plugin that is told to stop does what its registration asks for at that moment.
func TestTheNodeGoesOnWhateverBecomesOfItsKeeper(t *testing.T) {
	var o *options
	var keeper *exec.Cmd
	p := launch(t, func(p *program) {
		state, err := os.MkdirTemp("", "keeper") // short, for a socket's path
		if err != nil {
			p.t.Fatal(err)
		}
		p.t.Cleanup(func() { _ = os.RemoveAll(state) })
		p.tune = func(tuned *options) {
			tuned.places.Keeper, tuned.places.Grace = filepath.Join(state, "slots"), never
			tuned.places.Move = kubelet.MoveTimes{Patience: time.Second, Steady: 500 * time.Millisecond, Leave: 200 * time.Millisecond}
			o = tuned
		}
		p.tune(defaultOptions())
		keeper = p.keep(o)
	})
	// The kubelet forgets the latest registration when it notices that the stream of an earlier one
	// has ended. On a busy machine that is late, so it is waited for.
	settled := func(held bool, ended string) {
		t.Helper()
		p.await("the end of "+ended, func() bool { return !p.kubelet.Reads(ended) })
		p.await("the registration to be held or not", func() bool {
			return p.plugin.slots.Taken() && p.plugin.slots.IsHeld() == held && p.offered() == 2
		})
		p.kubelet.Await(t, "the slots", func(healthy, _, _ int) bool { return healthy == 20 })
	}
	count := 0
	comes := func() {
		t.Helper()
		count++
		pod := p.place("pod"+string(rune('a'+count)), p.inventory().Devices[0], false)
		if _, err := p.kubelet.BeginAgain(t.Context(), pod, "main"); err != nil {
			t.Fatal(err)
		}
	}
	settled(true, "nobody.sock")
	comes()
	p.requireUnmissed()

	for _, upset := range []struct {
		signal syscall.Signal
		held   bool
		ended  string
	}{{syscall.SIGSTOP, false, "nobody.sock"}, {syscall.SIGCONT, true, "deviceshare-count.sock"}, {syscall.SIGKILL, false, "deviceshare-proxy.sock"}} {
		if err := keeper.Process.Signal(upset.signal); err != nil {
			t.Fatal(err)
		}
		settled(upset.held, upset.ended)
		comes()
	}
	told, tell := context.WithCancel(t.Context())
	tell()
	ending, end := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() { defer close(left); p.plugin.agent.Leave(told, ending, p.plugin.slots, never) }()
	p.await("the devices to be withheld before it stops", func() bool { return p.offered() == 0 })
	end()
	<-left
}
