// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// wander is a node whose plugin, keeper and kubelet are killed, frozen and started in random order.
type wander struct {
	*mover
	random *rand.Rand
	alive  bool // the plugin
	list   map[string]bool
	pods   []*corev1.Pod
	count  int
}

// setList gives the plugin another list: at least three healthy slots, and some that may not be.
func (w *wander) setList() {
	var slots []*pluginapi.Device
	w.list = map[string]bool{}
	for i := range 3 + w.random.IntN(4) {
		d := &pluginapi.Device{ID: fmt.Sprintf("slot-%d", i), Health: pluginapi.Healthy}
		if i > 2 && w.random.IntN(2) == 0 {
			d.Health = pluginapi.Unhealthy
		}
		slots = append(slots, d)
		w.list[d.ID] = d.Health == pluginapi.Healthy
	}
	w.p.set(func() { w.p.devices = slots })
}

// agree waits until the kubelet knows the plugin's list, through the keeper if there is one that
// works.
func (w *wander) agree(after string) {
	w.t.Helper()
	if !w.alive {
		return
	}
	w.await("agreement after "+after, func() bool {
		return w.p.server.Taken() && w.p.server.IsHeld() == w.keeper.isHere() && maps.Equal(w.mover.kubelet.Health(), w.list)
	})
	w.upset.Store(false)
}

// admit lets a pod come. It is never refused while the plugin says that it takes pods, or while
// the keeper stands in for it: unless something was killed a moment ago.
func (w *wander) admit() {
	if len(w.pods) > 1 {
		w.leave()
	}
	takes := !w.upset.Load() && (!w.alive || w.p.server.Taken())
	told := len(w.p.told)
	if !takes {
		return // nobody sends it here
	}
	w.count++
	pod := podOf(fmt.Sprintf("pod-%d", w.count), "1")
	pod.UID = types.UID(pod.Name)
	err := w.mover.kubelet.Admit(pod)
	switch {
	case err == nil:
		w.pods = append(w.pods, pod)
	case len(w.p.told) == told:
		w.t.Fatalf("a pod was refused, plugin alive %v, keeper here %v: %v", w.alive, w.keeper.isHere(), err)
	default:
		if err := w.mover.kubelet.Forget(pod); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *wander) leave() {
	for _, pod := range w.pods {
		if err := w.mover.kubelet.Forget(pod); err != nil {
			w.t.Fatal(err)
		}
	}
	w.pods = nil
}

// begin starts a container of each pod that came, whoever named its allocation. The plugin either
// remembers no name for it, or the right one.
func (w *wander) begin() {
	for _, pod := range w.pods {
		names, err := w.mover.kubelet.Begin(context.Background(), pod, "main")
		if err != nil || len(names) != 2 {
			w.t.Fatalf("%s has the names %v: %v", pod.Name, names, err)
		}
		w.p.mu.Lock()
		slots := strings.Join(w.p.started[len(w.p.started)-1], ".")
		if known := w.p.named[slots]; known != "" && known != names[1] {
			w.t.Errorf("slots %s of %s are named %s, the plugin remembers %s", slots, pod.Name, names[1], known)
		}
		w.p.mu.Unlock()
	}
	w.leave()
}

// step does one thing that is possible now, and returns what.
func (w *wander) step() string {
	switch n := w.random.IntN(12); {
	case n < 1 && w.keeper.cmd != nil:
		w.upset.Store(true)
		w.keeper.kill()
		return "the death of the keeper"
	case n < 3 && w.keeper.cmd == nil:
		w.startKeeper()
		return "the start of a keeper"
	case n < 4 && w.keeper.isHere():
		w.upset.Store(true)
		w.keeper.freeze()
		return "the freezing of the keeper"
	case n < 5 && w.keeper.frozen:
		w.keeper.thaw()
		return "the thawing of the keeper"
	case n < 6 && w.alive:
		w.agree("all before")
		if !w.p.server.IsHeld() {
			w.upset.Store(true)
		}
		w.alive = false
		w.p.end()
		return "the death of the plugin"
	case n < 9 && !w.alive:
		w.p.run(w.t)
		w.watch()
		w.alive = true
		w.setList()
		return "the start of the plugin"
	case n < 9:
		w.setList()
		return "a change of the list"
	case n < 10:
		w.upset.Store(true)
		w.mover.kubelet.Restart(w.t)
		return "the restart of the kubelet"
	default:
		w.admit()
		return "a pod"
	}
}

// Whatever dies, freezes and comes back in whatever order: the kubelet knows the list of the plugin
// in the end, through a keeper if one works; it loses the slots by no move that was not published
// before; no pod is refused that was sent by what is published; allocations keep their names; and
// in the end nobody goes on registering.
func TestMovesInRandomOrders(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			w := &wander{mover: newMover(t, quickly), random: rand.New(rand.NewPCG(seed, 4)), alive: true}
			w.setList()
			for range 30 {
				did := w.step()
				for w.random.IntN(3) > 0 { // pods come while it has its effect
					w.admit()
					time.Sleep(time.Duration(w.random.IntN(100)) * time.Millisecond)
				}
				if w.random.IntN(3) == 0 {
					w.agree(did)
					if w.alive {
						w.begin()
					}
				}
			}
			if !w.alive {
				w.p.run(t)
				w.watch()
				w.alive = true
			}
			w.agree("everything")
			w.admit()
			w.begin()
			w.rests()
		})
	}
}
