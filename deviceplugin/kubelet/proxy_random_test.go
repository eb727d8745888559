// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/deviceplugin/kubelet/kubelettest"
)

// story is a node of which parts are killed in random order, with the account of what the kubelet
// must know: the last list of a plugin, whoever lives, and one registration for each kubelet.
type story struct {
	t      *testing.T
	random *rand.Rand
	w      *proxied
	p      *plugin
	alive  bool // the plugin
	// list is what the kubelet must know now.
	list          map[string]bool
	registrations int
	pods          []*corev1.Pod
	count         int
}

// newList is at least one healthy slot, and some that are not.
func (s *story) newList() []*pluginapi.Device {
	var slots []*pluginapi.Device
	s.count++
	for i := range 3 + s.random.IntN(4) {
		d := &pluginapi.Device{ID: fmt.Sprintf("slot-%d", i), Health: pluginapi.Healthy}
		if i > 2 && s.random.IntN(2) == 0 {
			d.Health = pluginapi.Unhealthy
		}
		slots = append(slots, d)
	}
	return slots
}

// expect makes a list the one that the kubelet must know.
func (s *story) expect(slots []*pluginapi.Device) {
	s.list = map[string]bool{}
	for _, d := range slots {
		s.list[d.GetID()] = d.GetHealth() == pluginapi.Healthy
	}
}

// agree waits until the kubelet knows what it must, by as many registrations as there have to be.
func (s *story) agree(after string) {
	s.t.Helper()
	s.w.kubelet.Await(s.t, "what it must know after "+after, func(_, _, n int) bool { return n >= s.registrations })
	for deadline := time.Now().Add(10 * time.Minute); !maps.Equal(s.w.kubelet.Health(), s.list); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("after %s the kubelet knows %v, want %v", after, s.w.kubelet.Health(), s.list)
		}
	}
	if n := s.w.kubelet.Registrations(); n != s.registrations {
		s.t.Fatalf("after %s there were %d registrations, want %d", after, n, s.registrations)
	}
}

// killPlugin ends the plugin, which may leave its socket behind.
func (s *story) killPlugin() string {
	s.agree("all before")
	s.p.end()
	s.alive = false
	if s.random.IntN(2) == 0 {
		_ = os.WriteFile(filepath.Join(s.w.directory, "test.sock"), nil, 0o600)
	}
	return "the death of the plugin"
}

// startPlugin starts it, with another list.
func (s *story) startPlugin() string {
	slots := s.newList()
	s.p.mu.Lock()
	s.p.devices = slots
	s.p.mu.Unlock()
	s.p.run(s.t)
	s.alive = true
	s.expect(slots)
	return "the start of the plugin"
}

func (s *story) changeList() string {
	slots := s.newList()
	s.p.set(func() { s.p.devices = slots })
	s.expect(slots)
	return "a change of the list"
}

func (s *story) restartKubelet() string {
	s.w.kubelet.Restart(s.t)
	s.registrations++
	return "the restart of the kubelet"
}

// admit lets a pod come. It is never refused where a healthy slot is free.
func (s *story) admit() string {
	pod := podOf(fmt.Sprintf("pod-%d", s.count), "1")
	s.count++
	pod.UID = types.UID(pod.Name)
	free := -len(s.pods)
	for _, healthy := range s.list {
		if healthy {
			free++
		}
	}
	if free <= 0 {
		s.leave()
	}
	if err := s.w.kubelet.Admit(pod); err != nil {
		s.t.Fatalf("a pod was refused, plugin alive %v: %v", s.alive, err)
	}
	s.pods = append(s.pods, pod)
	return "a pod came"
}

// leave ends all pods.
func (s *story) leave() {
	for _, pod := range s.pods {
		if err := s.w.kubelet.Forget(pod); err != nil {
			s.t.Fatal(err)
		}
	}
	s.pods = nil
}

// begin starts a container of each pod, for which the plugin has to be there.
func (s *story) begin() string {
	ends := make(chan error, len(s.pods))
	for _, pod := range s.pods {
		go func() {
			names, err := s.w.kubelet.BeginAgain(s.t.Context(), pod, "main")
			if err == nil && len(names) != 2 {
				err = fmt.Errorf("pod %s has the names %v", pod.Name, names)
			}
			ends <- err
		}()
	}
	if !s.alive {
		select {
		case err := <-ends:
			s.t.Fatalf("a container got through without the plugin: %v", err)
		case <-time.After(5 * time.Millisecond):
		}
		s.startPlugin()
	}
	for range s.pods {
		if err := <-ends; err != nil {
			s.t.Fatal(err)
		}
	}
	s.leave()
	return "containers began"
}

// Whatever dies in whatever order: the kubelet knows the last list of the plugin, by one
// registration in each of its lives; it is never without healthy slots; no pod is refused; and no
// container starts without the plugin.
func TestKillsInRandomOrders(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			s := &story{t: t, random: rand.New(rand.NewPCG(seed, 1)), registrations: 1}
			s.w = startProxy(t, kubelettest.Start(t), long, long)
			s.p = s.w.plugin(t)
			s.alive = true
			s.expect(s.p.devices)
			s.agree("the first start")
			since := len(s.w.kubelet.Seen()) - 1
			for range 40 {
				var did string
				switch n := s.random.IntN(10); {
				case n < 2 && s.alive:
					did = s.killPlugin()
				case n < 3 && !s.alive:
					did = s.startPlugin()
				case n < 5 && s.alive:
					did = s.changeList()
				case n < 6:
					neverWithout(t, s.w.kubelet, since)
					did = s.restartKubelet()
					s.agree(did)
					since = len(s.w.kubelet.Seen()) - 1
				case n < 9:
					s.agree("all before")
					did = s.admit()
				default:
					did = s.begin()
				}
				if s.random.IntN(3) > 0 {
					s.agree(did)
				}
			}
			s.agree("everything")
			neverWithout(t, s.w.kubelet, since)
		})
	}
}
