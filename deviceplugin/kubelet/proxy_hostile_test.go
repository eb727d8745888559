// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/deviceplugin/kubelet/kubelettest"
)

// registration is a client of the proxy's registration service.
func (w *proxied) registration(t *testing.T) pluginapi.RegistrationClient {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(w.directory, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return pluginapi.NewRegistrationClient(conn)
}

func request(change func(*pluginapi.RegisterRequest)) *pluginapi.RegisterRequest {
	r := &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: "other.sock", ResourceName: "example.com/other",
		Options: &pluginapi.DevicePluginOptions{PreStartRequired: true},
	}
	change(r)
	return r
}

func TestRegistrationsThatAreNonsenseAreRefused(t *testing.T) {
	w := startProxy(t, kubelettest.Start(t), long, long)
	client := w.registration(t)
	for name, change := range map[string]func(*pluginapi.RegisterRequest){
		"another version":            func(r *pluginapi.RegisterRequest) { r.Version = "v1alpha1" },
		"no version":                 func(r *pluginapi.RegisterRequest) { r.Version = "" },
		"no resource":                func(r *pluginapi.RegisterRequest) { r.ResourceName = "" },
		"a resource without domain":  func(r *pluginapi.RegisterRequest) { r.ResourceName = "cpu" },
		"a resource of many slashes": func(r *pluginapi.RegisterRequest) { r.ResourceName = "a/b/c" },
		"a socket elsewhere":         func(r *pluginapi.RegisterRequest) { r.Endpoint = "../device-plugins/kubelet.sock" },
		"an absolute socket":         func(r *pluginapi.RegisterRequest) { r.Endpoint = "/tmp/x.sock" },
		"the proxy itself":           func(r *pluginapi.RegisterRequest) { r.Endpoint = "kubelet.sock" },
		"no socket":                  func(r *pluginapi.RegisterRequest) { r.Endpoint = "" },
		"no start to be asked for":   func(r *pluginapi.RegisterRequest) { r.Options.PreStartRequired = false },
		"no options":                 func(r *pluginapi.RegisterRequest) { r.Options = nil },
	} {
		if _, err := client.Register(t.Context(), request(change)); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Bytes of every kind, plugins that register and never list anything, and connections that are
// left open: the kubelet keeps its slots, and the next plugin is served.
func TestWhoeverComesToTheSocketTheKubeletKeepsItsSlots(t *testing.T) {
	w := startProxy(t, kubelettest.Start(t), long, long)
	p := w.plugin(t)
	w.kubelet.Await(t, "the slots", func(healthy, _, _ int) bool { return healthy == 2 })
	since := len(w.kubelet.Seen()) - 1
	random := rand.New(rand.NewPCG(1, 2))
	var open []net.Conn
	for range 100 {
		c, err := net.Dial("unix", filepath.Join(w.directory, "kubelet.sock"))
		if err != nil {
			t.Fatal(err)
		}
		text := make([]byte, random.IntN(200))
		for i := range text {
			text[i] = byte(random.Uint32())
		}
		if random.IntN(2) == 0 {
			text = append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), text...)
		}
		_, _ = c.Write(text)
		open = append(open, c)
	}
	client := w.registration(t)
	for i := range 100 {
		r := request(func(r *pluginapi.RegisterRequest) { r.Endpoint = fmt.Sprintf("nobody%d.sock", i%3) })
		if _, err := client.Register(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	p.set(func() { p.devices = p.devices[:2] })
	w.kubelet.Await(t, "the plugin's next list", func(healthy, all, n int) bool { return healthy == 2 && all == 2 && n == 1 })
	p.end()
	p.run(t)
	p.set(func() { p.devices = p.devices[:1] })
	w.kubelet.Await(t, "the list of the next process", func(healthy, all, n int) bool { return healthy == 1 && all == 1 && n == 1 })
	neverWithout(t, w.kubelet, since)
	for _, c := range open {
		_ = c.Close()
	}
}

// A plugin that is killed while it prepares a container is asked again when it is back.
func TestAStartOverThePluginsDeathIsRepeated(t *testing.T) {
	w := startProxy(t, kubelettest.Start(t), long, long)
	p := w.plugin(t)
	w.kubelet.Await(t, "the slots", func(healthy, _, _ int) bool { return healthy == 2 })
	pod := podOf("p", "1")
	if err := w.kubelet.Admit(pod); err != nil {
		t.Fatal(err)
	}
	p.mu.Lock() // it hangs in Start
	begun := make(chan error, 1)
	go func() { _, err := w.kubelet.Begin(context.Background(), pod, "main"); begun <- err }()
	time.Sleep(50 * time.Millisecond)
	go p.end()
	time.Sleep(50 * time.Millisecond)
	p.mu.Unlock()
	p.run(t)
	if err := <-begun; err != nil {
		t.Errorf("the kubelet was told %v", err)
	}
}
