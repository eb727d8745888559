// SPDX-License-Identifier: Apache-2.0

// Package kubelettest is the kubelet's device manager for tests, over real sockets. It takes
// registrations and answers podresources. It assigns slots as the real one does: to init
// containers first, and app containers reuse those slots. It keeps the checkpoint file, and
// calls PreStartContainer with slots only.
package kubelettest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Kubelet is a running kubelet. Its methods are safe for concurrent use.
type Kubelet struct {
	pluginapi.UnimplementedRegistrationServer
	podresources.UnimplementedPodResourcesListerServer

	// Directory is the kubelet's root directory.
	Directory string
	// OldKubelet answers podresources Get as kubelets before 1.34 do.
	OldKubelet bool

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at every change
	resource string
	client   pluginapi.DevicePluginClient
	conn     *grpc.ClientConn
	streams  map[*grpc.ClientConn]registration // whose lists are taken in: conn's and earlier
	healthy  map[string]bool
	entries  []entry
	pods     map[string]*corev1.Pod // by UID
	others   map[string][]string    // what other device plugins offer, by resource
	server   *grpc.Server
	count    int           // registrations
	open     chan struct{} // closed while registrations are taken
	waiting  atomic.Int32  // registrations that are held
	holds    string        // the endpoint whose registrations open is about, "" for all
	seen     []Seen
	watch    func(before, now Seen)
}

// patience ends what hangs, so that its test fails by name. The real kubelet waits for ever, but
// for PreStartContainer.
const patience = 10 * time.Minute

// Seen is what the kubelet knew at one moment: its slots, and how often a plugin has registered.
type Seen struct{ Healthy, All, Registrations int }

// entry is one line of the checkpoint.
type entry struct {
	PodUID        string
	ContainerName string
	ResourceName  string
	DeviceIDs     map[int64][]string
	AllocResp     []byte
}

func (e *entry) slots() []string { return e.DeviceIDs[-1] }

// Start starts a kubelet in a new directory.
func Start(t *testing.T) *Kubelet {
	t.Helper()
	// Short, because a socket's path has at most 107 bytes.
	dir, err := os.MkdirTemp("", "kubelet")
	if err != nil {
		t.Fatal(err)
	}
	k := &Kubelet{Directory: dir, changed: make(chan struct{}), open: make(chan struct{}), healthy: map[string]bool{}, streams: map[*grpc.ClientConn]registration{}, pods: map[string]*corev1.Pod{}}
	close(k.open)
	for _, sub := range []string{"device-plugins", "pod-resources"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.listen(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		k.stop()
		_ = os.RemoveAll(dir)
	})
	return k
}

// Plugins is the directory of device plugins.
func (k *Kubelet) Plugins() string { return filepath.Join(k.Directory, "device-plugins") }

// Checkpoint is the path of the checkpoint.
func (k *Kubelet) Checkpoint() string {
	return filepath.Join(k.Plugins(), "kubelet_internal_checkpoint")
}

// PodResources is the socket of the podresources API.
func (k *Kubelet) PodResources() string {
	return filepath.Join(k.Directory, "pod-resources", "kubelet.sock")
}

func (k *Kubelet) listen() error {
	server := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, k)
	podresources.RegisterPodResourcesListerServer(server, k)
	for _, path := range []string{filepath.Join(k.Plugins(), "kubelet.sock"), k.PodResources()} {
		_ = os.Remove(path)
		listener, err := net.Listen("unix", path)
		if err != nil {
			return err
		}
		if u, ok := listener.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false) // it may be closed when the next life listens there
		}
		go func() { _ = server.Serve(listener) }()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.server = server
	return nil
}

func (k *Kubelet) stop() {
	k.mu.Lock()
	server, streams := k.server, k.streams
	k.conn, k.client, k.healthy, k.streams = nil, nil, nil, map[*grpc.ClientConn]registration{}
	k.wake()
	k.mu.Unlock()
	server.Stop()
	for conn := range streams {
		_ = conn.Close()
	}
}

// Restart stops and starts the kubelet: sockets of plugins are removed, what was
// handed out is kept.
func (k *Kubelet) Restart(t *testing.T) {
	t.Helper()
	k.Stop(t)()
}

// Stop stops the kubelet until it is started. Sockets of plugins are removed at once, and not, as
// the real one does, before its own is made.
func (k *Kubelet) Stop(t *testing.T) (start func()) {
	t.Helper()
	k.stop()
	sockets, err := filepath.Glob(filepath.Join(k.Plugins(), "*.sock"))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sockets {
		_ = os.Remove(s)
	}
	return func() {
		if err := k.listen(); err != nil {
			t.Error(err)
		}
	}
}

// Drop forgets the plugin, as a kubelet does that notices late that the stream of an
// earlier registration has ended: nothing tells the plugin but the end of its own.
func (k *Kubelet) Drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.disconnect()
	k.healthy = nil
	k.wake()
}

// disconnect ends the latest registration. The caller holds the lock.
func (k *Kubelet) disconnect() {
	if k.conn == nil {
		return
	}
	delete(k.streams, k.conn)
	_ = k.conn.Close()
	k.conn, k.client = nil, nil
	for id := range k.healthy {
		k.healthy[id] = false
	}
}

// HoldRegistrations lets registrations wait until they are taken again, those of one endpoint or,
// for "", all: what holds only while the kubelet does not know the plugin can be looked at
// meanwhile.
func (k *Kubelet) HoldRegistrations(endpoint string) (takeAgain func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	held := make(chan struct{})
	k.open, k.holds = held, endpoint
	return func() { close(held) }
}

// HeldRegistrations is how many registrations wait until they are taken.
func (k *Kubelet) HeldRegistrations() int { return int(k.waiting.Load()) }

// registration is what a plugin has registered.
type registration struct{ endpoint, resource string }

// Register implements the registration service.
func (k *Kubelet) Register(ctx context.Context, r *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	k.mu.Lock()
	open, holds := k.open, k.holds
	k.mu.Unlock()
	if holds == "" || holds == r.GetEndpoint() {
		k.waiting.Add(1)
		select {
		case <-open:
		case <-ctx.Done():
		}
		k.waiting.Add(-1)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
	}
	if r.GetVersion() != pluginapi.Version {
		return nil, fmt.Errorf("version %q is not supported", r.GetVersion())
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(k.Plugins(), r.GetEndpoint()), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	client := pluginapi.NewDevicePluginClient(conn)
	asking, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := client.GetDevicePluginOptions(asking, &pluginapi.Empty{}); err != nil {
		return nil, err
	}
	stream, err := client.ListAndWatch(context.Background(), &pluginapi.Empty{})
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	k.resource, k.client, k.conn = r.GetResourceName(), client, conn
	k.streams[conn] = registration{endpoint: r.GetEndpoint(), resource: k.resource}
	k.count++
	k.wake()
	k.mu.Unlock()
	go k.follow(conn, stream)
	return &pluginapi.Empty{}, nil
}

// follow takes in lists of devices. As with the real one, those of an earlier registration count as
// long as its stream is open, and when the stream of any registration of a resource ends, it is the
// latest one of it that is forgotten: both know the resource's name only.
func (k *Kubelet) follow(conn *grpc.ClientConn, stream grpc.ServerStreamingClient[pluginapi.ListAndWatchResponse]) {
	for {
		answer, err := stream.Recv()
		k.mu.Lock()
		by, known := k.streams[conn]
		switch {
		case !known: // of an earlier life, or forgotten
			err = errForgotten
		case err != nil:
			delete(k.streams, conn)
			if by.resource == k.resource {
				k.disconnect()
			}
			k.wake()
			_ = conn.Close()
		default:
			k.healthy = map[string]bool{}
			for _, d := range answer.GetDevices() {
				k.healthy[d.GetID()] = d.GetHealth() == pluginapi.Healthy
			}
			k.wake()
		}
		k.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// errForgotten: nobody is told.
var errForgotten = errors.New("the registration is no longer known")

// Seen is every different thing that the kubelet has known, in order.
func (k *Kubelet) Seen() []Seen {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.seen)
}

// Watch has a function called at the moment at which the kubelet comes to know something else. It
// must not call the kubelet.
func (k *Kubelet) Watch(watch func(before, now Seen)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.watch = watch
}

// Reads reports whether lists of an endpoint are taken in, be its registration the latest or not.
func (k *Kubelet) Reads(endpoint string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(slices.Collect(maps.Values(k.streams)), func(r registration) bool { return r.endpoint == endpoint })
}

// Registrations is how often a plugin has registered.
func (k *Kubelet) Registrations() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.count
}

// Calls is the endpoint that is called about containers: that of the latest registration, "" if it
// is forgotten.
func (k *Kubelet) Calls() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.streams[k.conn].endpoint
}

// Health is the slots that the kubelet knows, with their health.
func (k *Kubelet) Health() map[string]bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.healthy)
}

// wake tells whoever awaits. The caller holds the lock.
func (k *Kubelet) wake() {
	now := Seen{All: len(k.healthy), Registrations: k.count}
	for _, healthy := range k.healthy {
		if healthy {
			now.Healthy++
		}
	}
	if n := len(k.seen); n == 0 || k.seen[n-1] != now {
		if k.watch != nil && n > 0 {
			k.watch(k.seen[n-1], now)
		}
		k.seen = append(k.seen, now)
	}
	close(k.changed)
	k.changed = make(chan struct{})
}

// Await waits until the kubelet is as wanted.
func (k *Kubelet) Await(t *testing.T, what string, wanted func(healthy, all, registrations int) bool) {
	t.Helper()
	timeout := time.After(patience)
	for {
		k.mu.Lock()
		good := 0
		for _, h := range k.healthy {
			if h {
				good++
			}
		}
		ok, changed := wanted(good, len(k.healthy), k.count), k.changed
		all := len(k.healthy)
		k.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("the kubelet still waits for %s: %d of %d slots are healthy", what, good, all)
		}
	}
}
