// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/kubelet/kubelettest"
)

// proxied is a kubelet with a proxy.
type proxied struct {
	kubelet   *kubelettest.Kubelet
	directory string // where plugins register
	end       func() // tells the proxy to stop and waits
}

// long is a time that no test reaches.
const long = time.Hour

// stays are those of a plugin that has a proxy and never goes elsewhere.
var stays = kubelet.MoveTimes{Patience: long, Steady: long}

func startProxy(t *testing.T, k *kubelettest.Kubelet, grace, patience time.Duration) *proxied {
	t.Helper()
	return startProxyAs(t, k, kubelet.ProxyConfig{Grace: grace, Patience: patience})
}

// startProxyAs starts a proxy with the times of c.
func startProxyAs(t *testing.T, k *kubelettest.Kubelet, c kubelet.ProxyConfig) *proxied {
	t.Helper()
	w := &proxied{kubelet: k, directory: filepath.Join(k.Directory, "keeper")}
	c.Kubelet, c.Directory = k.Plugins(), w.directory
	proxy := kubelet.NewProxy(c)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := proxy.Run(ctx); err != nil {
			t.Errorf("the proxy ended with %v", err)
		}
	}()
	w.end = func() { cancel(); <-ended }
	t.Cleanup(w.end)
	// A directory cannot be watched before it is there, and the file of a socket is there a moment
	// before somebody listens.
	for {
		if conn, err := net.Dial("unix", filepath.Join(w.directory, "kubelet.sock")); err == nil {
			_ = conn.Close()
			return w
		}
		time.Sleep(time.Millisecond)
	}
}

// plugin starts a plugin, which ends before the proxy does.
func (w *proxied) plugin(t *testing.T) *plugin {
	t.Helper()
	return serveWith(t, w.kubelet, w.directory, stays)
}

// neverWithout expects that the kubelet knew healthy slots all the time since a moment.
func neverWithout(t *testing.T, k *kubelettest.Kubelet, since int) {
	t.Helper()
	for _, s := range k.Seen()[since:] {
		if s.Healthy == 0 {
			t.Errorf("the kubelet knew %+v in between", s)
		}
	}
}

func TestAKubeletWithAProxyDoesNotNoticeThatThePluginIsAway(t *testing.T) {
	w := startProxy(t, kubelettest.Start(t), long, long)
	p := w.plugin(t)
	w.kubelet.Await(t, "the slots", func(healthy, all, n int) bool { return healthy == 2 && all == 3 && n == 1 })
	since := len(w.kubelet.Seen()) - 1
	p.end()

	pod := podOf("p", "1")
	if err := w.kubelet.Admit(pod); err != nil {
		t.Fatalf("a pod that came while the plugin was away: %v", err)
	}
	type begun struct {
		names []string
		err   error
	}
	begins := make(chan begun, 1)
	go func() {
		names, err := w.kubelet.Begin(context.Background(), pod, "main")
		begins <- begun{names, err}
	}()
	select {
	case b := <-begins:
		t.Fatalf("a container was let through without the plugin: %v, %v", b.names, b.err)
	case <-time.After(100 * time.Millisecond):
	}
	p.run(t)
	b := <-begins
	if b.err != nil || len(b.names) != 2 || !strings.HasPrefix(b.names[1], "volcano.sh/vgpu=") {
		t.Fatalf("the container begins with %v, %v", b.names, b.err)
	}
	p.mu.Lock()
	if len(p.started) != 1 || p.named[strings.Join(p.started[0], ".")] != b.names[1] {
		t.Errorf("the plugin was asked to start %v, and told the names %v; the kubelet has %v", p.started, p.named, b.names)
	}
	p.mu.Unlock()
	p.set(func() { p.devices = p.devices[:1] })
	w.kubelet.Await(t, "the plugin's next list", func(healthy, all, n int) bool { return healthy == 1 && all == 1 && n == 1 })
	neverWithout(t, w.kubelet, since)
}

func TestSlotsOfAPluginThatStaysAwayAreUnhealthy(t *testing.T) {
	w := startProxy(t, kubelettest.Start(t), 300*time.Millisecond, long)
	p := w.plugin(t)
	w.kubelet.Await(t, "the slots", func(healthy, _, _ int) bool { return healthy == 2 })
	p.end()
	w.kubelet.Await(t, "no healthy slots", func(healthy, all, n int) bool { return healthy == 0 && all == 3 && n == 1 })
	p.run(t)
	w.kubelet.Await(t, "the slots again", func(healthy, all, n int) bool { return healthy == 2 && all == 3 && n == 1 })
}

func TestAStartThatThePluginDoesNotComeBackForIsToldSo(t *testing.T) {
	w := startProxy(t, kubelettest.Start(t), long, 200*time.Millisecond)
	p := w.plugin(t)
	w.kubelet.Await(t, "the slots", func(healthy, _, _ int) bool { return healthy == 2 })
	pod := podOf("p", "1")
	if err := w.kubelet.Admit(pod); err != nil {
		t.Fatal(err)
	}
	p.end()
	if _, err := w.kubelet.Begin(context.Background(), pod, "main"); err == nil || !strings.Contains(err.Error(), "the container starts when it is back") {
		t.Errorf("the kubelet was told %v", err)
	}
	p.run(t)
	w.kubelet.Await(t, "anything", func(int, int, int) bool { return true })
	for deadline := time.Now().Add(10 * time.Minute); ; { // as the kubelet does
		if _, err := w.kubelet.Begin(context.Background(), pod, "main"); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

func TestWhatThePluginSaysOfAStartReachesTheKubelet(t *testing.T) {
	w := startProxy(t, kubelettest.Start(t), long, long)
	p := w.plugin(t)
	w.kubelet.Await(t, "the slots", func(healthy, _, _ int) bool { return healthy == 2 })
	pod := podOf("p", "1")
	if err := w.kubelet.Admit(pod); err != nil {
		t.Fatal(err)
	}
	p.set(func() { p.refuse = errors.New("the device is on fire") })
	_, err := w.kubelet.Begin(context.Background(), pod, "main")
	if err == nil || !strings.Contains(err.Error(), "on fire") || strings.Count(err.Error(), "rpc error") > 1 {
		t.Errorf("the kubelet was told %v", err)
	}
}

func TestAProxyRegistersAgainWhileThePluginIsAway(t *testing.T) {
	w := startProxy(t, kubelettest.Start(t), long, long)
	p := w.plugin(t)
	w.kubelet.Await(t, "the slots", func(healthy, _, n int) bool { return healthy == 2 && n == 1 })
	p.end()
	w.kubelet.Restart(t)
	w.kubelet.Await(t, "the slots again", func(healthy, all, n int) bool { return healthy == 2 && all == 3 && n == 2 })
}

func TestThePluginIsToldWhetherTheKubeletTakesTheListOfTheProxy(t *testing.T) {
	w := startProxy(t, kubelettest.Start(t), long, long)
	p := w.plugin(t)
	p.awaitTaken(t, true)
	for i, upset := range []func(){w.kubelet.Drop, func() { w.kubelet.Restart(t) }} {
		w.kubelet.Await(t, "the slots", func(healthy, _, n int) bool { return healthy == 2 && n == i+1 })
		again := w.kubelet.HoldRegistrations("")
		upset()
		p.awaitTaken(t, false)
		again()
		p.awaitTaken(t, true)
	}
	w.kubelet.Await(t, "three registrations of the proxy", func(healthy, _, n int) bool { return healthy == 2 && n == 3 })
}

func TestAProxyThatStopsTellsThePluginFirst(t *testing.T) {
	w := startProxyAs(t, kubelettest.Start(t), kubelet.ProxyConfig{Grace: long, Patience: long, Leave: long})
	p := w.plugin(t)
	p.awaitTaken(t, true)
	w.kubelet.Await(t, "the slots", func(healthy, _, _ int) bool { return healthy == 2 })
	left := make(chan struct{})
	go func() { defer close(left); w.end() }()
	p.awaitTaken(t, false)
	select {
	case <-left:
		t.Error("it stopped before the pods that were on their way could come")
	default:
	}
	if err := w.kubelet.Admit(podOf("p", "1")); err != nil {
		t.Errorf("a pod that was on its way: %v", err)
	}
	p.end() // nobody is left to be told
	<-left
}

func TestAProxyThatStopsDoesNotWaitForThePluginForEver(t *testing.T) {
	w := startProxyAs(t, kubelettest.Start(t), kubelet.ProxyConfig{Grace: long, Patience: long, Leave: 50 * time.Millisecond})
	p := w.plugin(t)
	p.awaitTaken(t, true)
	w.end()
}

func TestARenamedResourceIsThatOfTheProxy(t *testing.T) {
	w := startProxy(t, kubelettest.Start(t), long, long)
	p := w.plugin(t)
	w.kubelet.Await(t, "the slots", func(healthy, _, n int) bool { return healthy == 2 && n == 1 })
	p.set(func() { p.resource = "example.com/b" })
	w.kubelet.Await(t, "the second name", func(healthy, _, n int) bool { return healthy == 2 && n == 2 })
}

// The kubelet knows registrations by the name of the resource. After a rename, the stream for the
// old name may end last.
func TestTheEndOfAnotherResourceLeavesARegistrationAlone(t *testing.T) {
	k := kubelettest.Start(t)
	old := serve(t, k)
	k.Await(t, "the slots", func(healthy, _, n int) bool { return healthy == 2 && n == 1 })
	renamed := &plugin{resource: "example.com/b", changes: make(chan struct{}, 1), devices: old.devices}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	server := kubelet.NewServer(kubelet.ServerConfig{Directory: k.Plugins(), Socket: "renamed.sock", Offer: renamed})
	go func() { defer close(ended); _ = server.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	k.Await(t, "the second name", func(healthy, _, n int) bool { return healthy == 2 && n == 2 })
	old.end()
	for k.Reads("test.sock") {
		time.Sleep(time.Millisecond)
	}
	if called := k.Calls(); called != "renamed.sock" {
		t.Errorf("the kubelet calls %q", called)
	}
}

func TestAPluginThatListsNonsenseChangesNothing(t *testing.T) {
	for name, slots := range map[string][]*pluginapi.Device{
		"a slot without a name":  {{ID: "", Health: pluginapi.Healthy}},
		"one slot twice":         {{ID: "a", Health: pluginapi.Healthy}, {ID: "a", Health: pluginapi.Healthy}},
		"a health of its own":    {{ID: "a", Health: "Splendid"}},
		"more than can be there": make([]*pluginapi.Device, 60001),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startProxy(t, kubelettest.Start(t), long, long)
			p := w.plugin(t)
			w.kubelet.Await(t, "the slots", func(healthy, _, _ int) bool { return healthy == 2 })
			good := p.devices
			p.set(func() { p.devices = slots })
			p.awaitTaken(t, true)
			p.awaitTaken(t, false)
			since := len(w.kubelet.Seen()) - 1
			p.set(func() { p.devices = good[:1] })
			w.kubelet.Await(t, "the next good list", func(healthy, all, n int) bool { return healthy == 1 && all == 1 && n == 1 })
			neverWithout(t, w.kubelet, since)
		})
	}
}

// A kubelet that starts fails pods whose slots are not healthy, and those that hold some can wait
// for the plugin.
func TestSlotsThatPodsHoldStayHealthyHoweverLongThePluginIsAway(t *testing.T) {
	w := startProxy(t, kubelettest.Start(t), time.Millisecond, long)
	p := w.plugin(t)
	w.kubelet.Await(t, "the slots", func(healthy, _, _ int) bool { return healthy == 2 })
	pod := podOf("p", "1")
	if err := w.kubelet.Admit(pod); err != nil {
		t.Fatal(err)
	}
	p.end()
	w.kubelet.Await(t, "one slot that is held", func(healthy, all, _ int) bool { return healthy == 1 && all == 3 })
	if err := w.kubelet.Admit(podOf("q", "1")); err == nil {
		t.Error("a new pod was admitted although the plugin has been away for too long")
	}
	w.kubelet.Restart(t)
	w.kubelet.Await(t, "it again", func(healthy, all, _ int) bool { return healthy == 1 && all == 3 })
	if err := w.kubelet.Readmit(pod, func(string) bool { return false }); err != nil {
		t.Errorf("a pod that was there before: %v", err)
	}
}
