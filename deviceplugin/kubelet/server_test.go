// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/kubelet/kubelettest"
)

// plugin is a served resource.
type plugin struct {
	mu       sync.Mutex
	resource string
	devices  []*pluginapi.Device
	changes  chan struct{}
	refuse   error
	started  [][]string
	named    map[string]string // slots -> what it, or as it was told a proxy, named them
	forgot   int               // how often it was told to forget
	told     chan bool         // what Taken answered whenever it was told to have changed
	end      func()            // stops the server, as the death of its process does
	server   *kubelet.Server   // that of the process
	kubelet  *kubelettest.Kubelet
	asked    func() // called, if not nil, when the name of the resource is asked for
	keeper   string // where it registers with a proxy, "" for nowhere
	move     kubelet.MoveTimes
}

func (p *plugin) ResourceName() string {
	p.mu.Lock()
	resource, asked := p.resource, p.asked
	p.mu.Unlock()
	if asked != nil {
		asked()
	}
	return resource
}

func (p *plugin) Devices() []*pluginapi.Device {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.devices
}

func (p *plugin) Changes() (<-chan struct{}, func()) { return p.changes, func() {} }

func (p *plugin) Allocate(slots []string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	name := "volcano.sh/vgpu=" + strings.Join(slots, ".")
	p.named[strings.Join(slots, ".")] = name
	return name, p.refuse
}

func (p *plugin) Allocated(slots []string, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.named[strings.Join(slots, ".")] = name
}

func (p *plugin) Forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgot++
	p.named = map[string]string{}
}

func (p *plugin) Start(_ context.Context, slots []string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.started = append(p.started, slots)
	return p.refuse
}

func (p *plugin) set(change func()) {
	p.mu.Lock()
	change()
	p.mu.Unlock()
	select {
	case p.changes <- struct{}{}:
	default:
	}
}

// serve starts a plugin at a kubelet.
func serve(t *testing.T, k *kubelettest.Kubelet) *plugin {
	t.Helper()
	return serveWith(t, k, "", kubelet.MoveTimes{})
}

// serveWith starts a plugin that may have a proxy.
func serveWith(t *testing.T, k *kubelettest.Kubelet, keeper string, move kubelet.MoveTimes) *plugin {
	t.Helper()
	p := &plugin{
		resource: "example.com/a", changes: make(chan struct{}, 1), named: map[string]string{}, told: make(chan bool, 10000),
		kubelet: k, keeper: keeper, move: move,
	}
	p.devices = kubelet.Slots([]string{"slot-0", "slot-1", "slot-2"}, -1)
	p.devices[2].Health = pluginapi.Unhealthy // as a plugin of another kind would offer it
	p.run(t)
	return p
}

// run serves the plugin until it ends.
func (p *plugin) run(t *testing.T) {
	var server *kubelet.Server
	server = kubelet.NewServer(kubelet.ServerConfig{
		Directory: p.kubelet.Plugins(), Keeper: p.keeper, Move: p.move, Socket: "test.sock", Offer: p, Handler: p,
		Taken: func() { p.told <- server.Taken() },
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Run(ctx) }()
	p.server, p.end = server, func() { cancel(); <-ended }
	t.Cleanup(p.end)
}

func podOf(name string, slots string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "uid"}}
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
		Limits: corev1.ResourceList{"example.com/a": resource.MustParse(slots)},
	}}}
	return p
}

func TestTheKubeletSeesSlotsAndTheirHealth(t *testing.T) {
	k := kubelettest.Start(t)
	p := serve(t, k)
	k.Await(t, "the slots", func(healthy, all, _ int) bool { return healthy == 2 && all == 3 })
	p.set(func() { p.devices = nil })
	k.Await(t, "no slots", func(_, all, _ int) bool { return all == 0 })
}

func TestCallsReachTheHandlerAndItsErrorsTheKubelet(t *testing.T) {
	k := kubelettest.Start(t)
	p := serve(t, k)
	k.Await(t, "the slots", func(healthy, _, _ int) bool { return healthy == 2 })
	pod := podOf("p", "2")
	if err := k.Admit(pod); err != nil {
		t.Fatal(err)
	}
	names, err := k.Begin(context.Background(), pod, "main")
	if err != nil || len(names) != 2 || names[1] != "volcano.sh/vgpu=slot-0.slot-1" || len(p.started) != 1 {
		t.Errorf("names %v, started %v, %v", names, p.started, err)
	}
	// A runtime that ignores the name must not give the container what its image asks for.
	if env, err := k.Variables(pod, "main"); err != nil || env["NVIDIA_VISIBLE_DEVICES"] != "void" {
		t.Errorf("variables %v, %v", env, err)
	}
	p.set(func() { p.refuse = errors.New("the device is on fire") })
	if _, err := k.Begin(context.Background(), pod, "main"); err == nil || !strings.Contains(err.Error(), "on fire") {
		t.Errorf("the kubelet was told %v", err)
	}
	if err := k.Forget(pod); err != nil {
		t.Fatal(err)
	}
	if err := k.Admit(pod); err == nil || !strings.Contains(err.Error(), "on fire") {
		t.Errorf("admission was told %v", err)
	}
}

func TestItRegistersAgainWhenTheKubeletNeedsIt(t *testing.T) {
	for name, upset := range map[string]func(*testing.T, *kubelettest.Kubelet, *plugin){
		"the kubelet restarts":         func(t *testing.T, k *kubelettest.Kubelet, _ *plugin) { k.Restart(t) },
		"the kubelet has forgotten us": func(_ *testing.T, k *kubelettest.Kubelet, _ *plugin) { k.Drop() },
		"our socket is removed": func(t *testing.T, k *kubelettest.Kubelet, _ *plugin) {
			if err := os.Remove(filepath.Join(k.Plugins(), "test.sock")); err != nil {
				t.Fatal(err)
			}
		},
		"the resource is renamed": func(_ *testing.T, _ *kubelettest.Kubelet, p *plugin) {
			p.set(func() { p.resource = "example.com/b" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := kubelettest.Start(t)
			p := serve(t, k)
			k.Await(t, "the first registration", func(healthy, _, n int) bool { return n == 1 && healthy == 2 })
			upset(t, k, p)
			k.Await(t, "the second registration", func(healthy, _, n int) bool { return n == 2 && healthy == 2 })
		})
	}
}

// A kubelet may come between the moment from which its socket is watched and the registration. What
// the watch then tells is no news.
func TestAKubeletIsRegisteredWithOnceInEachOfItsLives(t *testing.T) {
	k := kubelettest.Start(t)
	p := serve(t, k)
	for life := 1; ; life++ {
		k.Await(t, "the registration", func(healthy, _, n int) bool { return n >= life && healthy == 2 })
		if n := k.Registrations(); n != life {
			t.Fatalf("in %d lives it had %d registrations", life, n)
		}
		if life == 5 {
			return
		}
		p.set(func() { p.asked = sync.OnceFunc(k.Stop(t)) }) // asked between the two
	}
}

// awaitTaken waits until the server has told that.
func (p *plugin) awaitTaken(t *testing.T, want bool) {
	t.Helper()
	for timeout := time.After(10 * time.Minute); ; {
		select {
		case got := <-p.told:
			if got == want {
				return
			}
		case <-timeout:
			t.Fatalf("it was never told that the list being taken is %v", want)
		}
	}
}

func TestItIsToldWhetherTheKubeletKnowsTheDevices(t *testing.T) {
	k := kubelettest.Start(t)
	p := serve(t, k)
	p.awaitTaken(t, true)
	k.Await(t, "the slots", func(healthy, _, _ int) bool { return healthy == 2 })
	for name, upset := range map[string]func(){"it forgets": k.Drop, "it restarts": func() { k.Restart(t) }} {
		again := k.HoldRegistrations("")
		upset()
		p.awaitTaken(t, false)
		again()
		p.awaitTaken(t, true)
		k.Await(t, "the slots after "+name, func(healthy, _, _ int) bool { return healthy == 2 })
	}
}

func TestTheSocketOfTheProcessBeforeIsNoReasonToRegisterTwice(t *testing.T) {
	k := kubelettest.Start(t)
	path := filepath.Join(k.Plugins(), "test.sock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	p := serve(t, k)
	k.Await(t, "the registration", func(healthy, _, n int) bool { return n == 1 && healthy == 2 })
	p.set(func() { p.devices = nil })
	k.Await(t, "no slots, by the first registration", func(_, all, n int) bool { return n == 1 && all == 0 })
}

func TestSlotsCarryTheNUMANodeThatAllDevicesShare(t *testing.T) {
	names := []string{"slot-0", "GPU-a-1"}
	for i, slot := range kubelet.Slots(names, -1) {
		if slot.GetTopology() != nil || slot.GetID() != names[i] || slot.GetHealth() != pluginapi.Healthy {
			t.Errorf("slot %d is %v", i, slot)
		}
	}
	for _, slot := range kubelet.Slots(names, 1) {
		if nodes := slot.GetTopology().GetNodes(); len(nodes) != 1 || nodes[0].GetID() != 1 {
			t.Errorf("slot %s is at %v", slot.GetID(), nodes)
		}
	}
}
