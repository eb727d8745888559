// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/node"
)

func TestAPluginWithAKeeperStopsAtOnceAndIsNotMissed(t *testing.T) {
	p := launch(t, withKeeper)
	p.awaitOffer()
	p.requireUnmissed()
	if p.offered() != 2 {
		t.Errorf("%d devices are offered", p.offered())
	}
}

// requireUnmissed tells the plugin to leave while a keeper holds its registration, and wants that
// it does so at once. On a busy machine a keeper may get no processor for seconds and count as
// away, and the plugin would stay: heldRegistration waits until the keeper is back.
func (p *program) requireUnmissed() {
	p.t.Helper()
	told, tell := context.WithCancel(p.t.Context())
	tell()
	working, end := context.WithTimeout(p.t.Context(), 10*time.Minute)
	defer end()
	p.plugin.agent.Leave(told, working, heldRegistration{p}, never)
	if working.Err() != nil {
		p.t.Fatal("a plugin whose registration is held did not leave")
	}
}

// heldRegistration is the plugin's registration, which answers as soon as a keeper holds it.
type heldRegistration struct{ *program }

// IsHeld reports it once it is so.
func (r heldRegistration) IsHeld() bool {
	r.await("the registration to be held", r.plugin.slots.IsHeld)
	return true
}

// A keeper may live on for a container, and would offer the devices of a product that is gone.
func TestAPluginThatIsUninstalledLeavesNoSlotsWithItsKeeper(t *testing.T) {
	p := launch(t, withKeeper)
	p.awaitOffer()
	p.plugin.agent.Send(node.Withdrawing{})
	told, tell := context.WithCancel(t.Context())
	working, end := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() { defer close(left); p.plugin.agent.Leave(told, working, p.plugin.slots, never) }()
	tell()
	p.kubelet.Await(t, "no slots", func(_, all, _ int) bool { return all == 0 })
	end()
	<-left
	since := len(p.kubelet.Seen()) - 1
	p.end()
	for _, s := range p.kubelet.Seen()[since:] {
		if s.All != 0 {
			t.Errorf("the kubelet knew %+v after the plugin had left", s)
		}
	}
}

// withKeeper has the plugin register with a proxy.
func withKeeper(p *program) {
	directory, err := os.MkdirTemp("", "keeper") // short, for a socket's path
	if err != nil {
		p.t.Fatal(err)
	}
	p.tune = func(o *options) {
		o.places.Keeper, o.places.Grace, o.places.Move = directory, time.Hour, kubelet.MoveTimes{Patience: never, Steady: never}
	}
	o := defaultOptions()
	p.tune(o)
	o.places.Root = kubelet.Directory(p.kubelet.Directory)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- o.places.NewProxy().Run(ctx) }()
	p.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			p.t.Error(err)
		}
		_ = os.RemoveAll(directory)
	})
}

// A pod that comes while the plugin is away is admitted, and started by the next one.
func TestAPodComesWhileAPluginWithAKeeperIsAway(t *testing.T) {
	p := launch(t, withKeeper)
	p.awaitOffer()
	device := p.inventory().Devices[0]
	since := len(p.kubelet.Seen()) - 1
	p.end()
	pod := p.place("late", device, false)
	p.start()
	names, err := p.kubelet.Begin(t.Context(), pod, "main")
	if err != nil {
		t.Fatal(err)
	}
	id := strings.TrimPrefix(names[len(names)-1], "volcano.sh/vgpu=")
	spec := filepath.Join(p.dir, "cdi", "volcano.sh-vgpu-"+id+".json")
	if text, err := os.ReadFile(spec); err != nil || !strings.Contains(string(text), "CUDA_DEVICE_MEMORY_LIMIT_0=1000m") {
		t.Errorf("the specification is %s, %v", text, err)
	}
	for _, s := range p.kubelet.Seen()[since:] {
		if s.Healthy != 20 || s.Registrations != 1 {
			t.Errorf("the kubelet knew %+v", s)
		}
	}
	p.awaitOffer()
}
