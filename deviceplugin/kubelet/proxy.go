// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/deviceplugin/cdi"
)

// ProxyConfig is what a Proxy works with. All fields are needed.
type ProxyConfig struct {
	// Kubelet is the kubelet's directory of device plugins.
	Kubelet string
	// Directory is where the device plugin registers instead. It is made if it is missing, and
	// must belong to the Proxy and the plugin alone.
	Directory string
	// Grace is how long the slots of a plugin that is away stay healthy. Those that some container
	// holds do so for longer.
	Grace time.Duration
	// Patience is how long the start of a container waits for a plugin that is away. The kubelet
	// gives up after 30 s, and tries again.
	Patience time.Duration
	// Leave is how long a Proxy that is to stop works on after it has told the plugin so. The
	// plugin publishes meanwhile that the node takes no pods.
	Leave time.Duration
}

// Proxy is registered with the kubelet for the device plugin, and stays so while the plugin is
// restarted or killed. The plugin registers with the Proxy as it would with a kubelet.
//
//	ListAndWatch       the plugin's list; while it is away the last one, healthy for the grace,
//	                   and what is held for longer
//	Allocate           answered here, because the kubelet refuses a pod for good if it fails
//	PreStartContainer  forwarded; it waits for a plugin that is away, and the kubelet repeats it
//
// The standard gRPC health service at the plugin's side tells whether the kubelet takes the list.
// A Proxy holds one resource: that of the latest plugin that has listed slots.
//
// A plugin for which no Proxy does its part registers with the kubelet itself, and leaves a mark
// in the Directory. A Proxy that was only slow, or frozen, says nothing more to the kubelet then.
// It does not end its registration either: the kubelet would forget the plugin with it. When the
// plugin is back, its own registration has ended, and the Proxy registers anew.
type Proxy struct {
	cfg         ProxyConfig
	server      *Server
	health      *health.Server
	allocations Allocations

	mu       sync.Mutex
	standing standing
	dismiss  context.CancelFunc // ends the registration with the kubelet; nil while there is none
	state    proxyState
	count    int            // sessions that began
	current  *pluginSession // that of state, nil while the plugin is away
	next     *pluginSession // registered and has not listed its slots yet
	readers  []chan struct{}

	// registering is the lock of a registration that is under way, nil if none is. It belongs to
	// serveKubelet.
	registering *os.File
}

// NewProxy returns a proxy that has not started.
func NewProxy(cfg ProxyConfig) *Proxy {
	p := &Proxy{cfg: cfg, health: health.NewServer()}
	p.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	p.server = NewServer(ServerConfig{
		Directory: cfg.Kubelet, Socket: "deviceshare-proxy.sock", Offer: proxyOffer{p}, Handler: proxyHandler{p}, Taken: p.updateHealth,
		Registering: p.registerUnlessSuperseded,
	})
	return p
}

// updateHealth tells the plugin whether the kubelet takes the list.
func (p *Proxy) updateHealth() {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken := p.server.Taken()
	if !taken && !p.state.present {
		p.checkMark()
	}
	if !taken && p.standing == superseded && p.dismiss != nil {
		p.dismiss() // before it registers again
	}
	status := healthpb.HealthCheckResponse_NOT_SERVING
	if taken && p.standing == inForce {
		status = healthpb.HealthCheckResponse_SERVING
	}
	p.health.SetServingStatus("", status)
}

// Run works until ctx ends, and for a moment longer if a plugin has to be told.
func (p *Proxy) Run(ctx context.Context) error {
	listener, err := listenForPlugins(p.cfg.Directory)
	if err != nil {
		return err
	}
	working, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	group, working := errgroup.WithContext(working)
	registry := &proxyRegistry{Proxy: p, ended: working, group: group}
	plugins := grpc.NewServer(grpc.WaitForHandlers(true))
	pluginapi.RegisterRegistrationServer(plugins, registry)
	healthpb.RegisterHealthServer(plugins, p.health)
	group.Go(func() error { return plugins.Serve(listener) })
	group.Go(func() error { return p.serveKubelet(working) })
	select {
	case <-working.Done():
	case <-ctx.Done():
		p.drainPlugin(working)
	}
	end()
	plugins.Stop()
	return group.Wait()
}

func listenForPlugins(directory string) (net.Listener, error) {
	if err := os.MkdirAll(directory, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory in which the device plugin registers: %w", err)
	}
	return ListenAt(filepath.Join(directory, kubeletSocket))
}

// serveKubelet is registered with the kubelet whenever there is a list to offer.
func (p *Proxy) serveKubelet(ctx context.Context) error {
	defer p.endRegistering()
	for p.awaitSlots(ctx) {
		if err := p.server.Run(p.beginRegistration(ctx)); err != nil {
			return err
		}
		sleepContext(ctx, streamEndGrace)
	}
	return nil
}

// drainPlugin tells the plugin that the kubelet will not know its devices any more, and works on
// until the plugin has had its time or is away.
func (p *Proxy) drainPlugin(working context.Context) {
	p.health.Shutdown()
	changes, stop := p.subscribeChanges()
	defer stop()
	enough := time.After(p.cfg.Leave)
	klog.InfoS("stopping; the device plugin is told", "stops-within", p.cfg.Leave)
	for p.currentState().present {
		select {
		case <-working.Done():
			return
		case <-enough:
			return
		case <-changes:
		}
	}
}

// awaitSlots returns when there is a list to offer, and false if ctx ends before that.
func (p *Proxy) awaitSlots(ctx context.Context) bool {
	changes, stop := p.subscribeChanges()
	defer stop()
	for !p.hasOffer() {
		select {
		case <-ctx.Done():
			return false
		case <-changes:
		}
	}
	return ctx.Err() == nil
}

func (p *Proxy) hasOffer() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state.isKnown() && p.standing != superseded
}

func (p *Proxy) currentState() proxyState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// subscribeChanges gives a channel that holds a token after every change of the state, until
// stopped.
func (p *Proxy) subscribeChanges() (changes <-chan struct{}, stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := make(chan struct{}, 1)
	p.readers = append(p.readers, c)
	return c, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.readers = slices.DeleteFunc(p.readers, func(x chan struct{}) bool { return x == c })
	}
}

// notifyReaders wakes the subscribers. The caller holds the lock.
func (p *Proxy) notifyReaders() {
	for _, c := range p.readers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// proxyOffer is what the kubelet is offered.
type proxyOffer struct{ *Proxy }

func (o proxyOffer) ResourceName() string { return o.currentState().resource }

func (o proxyOffer) Devices() []*pluginapi.Device {
	s := o.currentState()
	held := sync.OnceValue(func() func(string) bool { return o.heldSlots(s.resource) })
	return s.offeredSlots(time.Now(), o.cfg.Grace, func(slot string) bool { return held()(slot) })
}

// heldSlots tells which slots the kubelet recorded for some container. Where its record cannot be
// read, each may be held.
func (o proxyOffer) heldSlots(resource string) func(slot string) bool {
	record, err := readCheckpointIn(o.cfg.Kubelet)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		klog.ErrorS(err, "it is not known which slots are held; all stay healthy", "resource", resource)
		return func(string) bool { return true }
	}
	held := map[string]bool{}
	for _, h := range record.Of(resource) {
		for _, slot := range h.Slots {
			held[slot] = true
		}
	}
	return func(slot string) bool { return held[slot] }
}

func (o proxyOffer) Changes() (<-chan struct{}, func()) { return o.subscribeChanges() }

// proxyHandler answers the kubelet's calls about containers.
type proxyHandler struct{ *Proxy }

// Allocate implements Handler. It needs nothing of the plugin: an allocation is a name.
func (h proxyHandler) Allocate(slots []string) (string, error) {
	id, err := cdi.NewID()
	if err != nil {
		return "", err
	}
	h.allocations.Put(slots, cdi.Name(id))
	return cdi.Name(id), nil
}

// Allocated implements Handler. The kubelet says no such thing.
func (proxyHandler) Allocated([]string, string) {}

// Forget implements Handler. What to forget is seen by the mark of the plugin.
func (proxyHandler) Forget() {}
