// SPDX-License-Identifier: Apache-2.0

// Package kubelet is everything that the device plugin exchanges with the kubelet.
//
// Server speaks the device plugin protocol (v1beta1) for one resource. It translates calls and
// decides nothing: its Handler does.
//
// Resolver finds out which pod and container a call is for. The protocol does not say, so it
// reads the kubelet's own records and never guesses. There are two records. The kubelet's
// checkpoint file is exact (pod UID, container, init containers too) but is not an API. The
// podresources API is one, but has neither UIDs nor init containers. Where both answer they
// must agree.
package kubelet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Handler answers the calls that are about containers.
type Handler interface {
	// Allocate answers with the CDI device name for a container that gets these
	// slots. It must be quick: the kubelet blocks the node's pods meanwhile.
	Allocate(slots []string) (cdi string, err error)
	// Allocated is told before Start which CDI device name a Proxy answered with in
	// our place.
	Allocated(slots []string, cdi string)
	// Start is called before each start of the container that holds these slots;
	// an error keeps it from starting, and the kubelet tries again.
	Start(ctx context.Context, slots []string) error
}

// Offer is what a Server offers to the kubelet. Implementations are safe for
// concurrent use.
type Offer interface {
	Resource
	// Devices are the slots to offer now.
	Devices() []*pluginapi.Device
	// Changes gives a channel that holds a token when Devices may answer
	// differently, until it is stopped.
	Changes() (changes <-chan struct{}, stop func())
}

// Resource knows the name of the resource that pods ask for. The administrator can
// change it, so it is asked for anew now and then.
type Resource interface {
	ResourceName() string
}

// ServerConfig is what a Server works with.
type ServerConfig struct {
	// Directory is the kubelet's directory of device plugins.
	Directory string
	// Socket is the file name of our socket in it.
	Socket string
	Offer  Offer
	// Handler may be nil for a resource that needs no preparation.
	Handler Handler
	// Proxied: it is a Proxy that registrations go to, and not the kubelet itself.
	Proxied bool
	// Taken is told that Server.Taken may answer differently. It must not block, and
	// may be nil.
	Taken func()
}

// Server serves one resource until told to stop.
type Server struct {
	pluginapi.UnimplementedDevicePluginServer
	cfg  ServerConfig
	tick time.Duration // between looks at the resource name; at most between attempts
	// pause is how long to wait after the next registration that fails, and again after
	// the next one whose list is no longer read; both are Run's own.
	pause, again wait.Backoff
	// streams is how many lists of devices were taken and are still watched.
	streams atomic.Int32
	// proxyTaken is whether the kubelet has taken the list of the Proxy.
	proxyTaken atomic.Bool
}

// NewServer returns a server that has not started.
func NewServer(cfg ServerConfig) *Server {
	s := &Server{cfg: cfg, tick: 3 * time.Second}
	s.pause, s.again = s.pauses(), s.pauses()
	return s
}

// Taken reports whether the kubelet has taken the list of devices and still watches
// it. While it does not, it refuses every pod that asks for the resource, for good
// (UnexpectedAdmissionError). It is safe for concurrent use.
func (s *Server) Taken() bool {
	return s.streams.Load() > 0 && (!s.cfg.Proxied || s.proxyTaken.Load())
}

func (s *Server) countStreams(more int32) {
	s.streams.Add(more)
	s.tellTaken()
}

func (s *Server) tellTaken() {
	if s.cfg.Taken != nil {
		s.cfg.Taken()
	}
}

// Run serves and stays registered until ctx ends. A kubelet that restarts empties
// the directory and makes its socket anew: then everything starts over.
func (s *Server) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		err := s.session(ctx)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			klog.ErrorS(err, "device plugin server stopped; starting it again", "resource", s.cfg.Offer.ResourceName(), "in", s.tick)
			select {
			case <-ctx.Done():
			case <-time.After(s.tick):
			}
		}
	}
	return nil
}

// session serves from one registration to the next.
func (s *Server) session(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch the kubelet's directory: %w", err)
	}
	defer func() { _ = watcher.Close() }()
	// Watched before registering, so that no restart in between is missed.
	if err := watcher.Add(s.cfg.Directory); err != nil {
		return fmt.Errorf("watch %s, is this the kubelet's directory? %w", s.cfg.Directory, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	now, stop, err := s.listen(ctx)
	if err != nil {
		return err
	}
	defer stop()
	resource := s.cfg.Offer.ResourceName()
	if err := s.register(ctx, resource); err != nil {
		klog.ErrorS(err, "not registered; waiting for the kubelet", "resource", resource)
		s.awaitKubelet(ctx, watcher)
		return nil
	}
	s.pause = s.pauses()
	klog.InfoS("registered with the kubelet", "resource", resource, "slots", len(s.cfg.Offer.Devices()), "proxied", s.cfg.Proxied)
	if s.cfg.Proxied {
		over := make(chan struct{})
		go func() { defer close(over); s.followProxy(ctx) }()
		defer func() { cancel(); <-over }() // what it says last must not be about the next session
	}
	return s.watch(ctx, watcher, now, resource)
}

// listen serves on our socket.
func (s *Server) listen(ctx context.Context) (now *session, stop func(), err error) {
	path := s.socket()
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, fmt.Errorf("remove the old socket: %w", err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, nil, fmt.Errorf("listen for the kubelet: %w", err)
	}
	server := grpc.NewServer()
	now = &session{Server: s, ended: ctx, broken: make(chan error, 1), unread: make(chan struct{}, 1)}
	pluginapi.RegisterDevicePluginServer(server, now)
	go func() { now.broken <- server.Serve(listener) }()
	return now, server.Stop, nil
}

// watch returns nil when it is time to register again.
//
// A kubelet that reads no list of ours has forgotten us, whatever it answered when
// we registered: it forgets by the resource's name when it notices that a stream
// has ended, and that may be the stream of the process before this one, after this
// one has registered. It then counts the resource as gone until somebody
// registers.
func (s *Server) watch(ctx context.Context, watcher *fsnotify.Watcher, now *session, resource string) error {
	ticker := time.NewTicker(s.tick)
	defer ticker.Stop()
	for ticks := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case err := <-now.broken:
			return fmt.Errorf("serve the kubelet: %w", err)
		case err := <-watcher.Errors:
			return fmt.Errorf("watch the kubelet's directory: %w", err)
		case e := <-watcher.Events:
			restarted := filepath.Base(e.Name) == kubeletSocket && e.Has(fsnotify.Create)
			removed := filepath.Base(e.Name) == s.cfg.Socket && e.Has(fsnotify.Remove) && s.socketIsGone()
			if restarted || removed {
				klog.InfoS("the kubelet restarted; registering again", "resource", resource, "event", e.String())
				return nil
			}
		case <-ticker.C:
			if name := s.cfg.Offer.ResourceName(); name != resource {
				klog.InfoS("the resource was renamed; registering again", "from", resource, "to", name)
				return nil
			}
			if ticks++; s.streams.Load() > 0 {
				ticks, s.again = 0, s.pauses()
			}
			if ticks > 1 {
				klog.InfoS("the kubelet reads no list; registering again", "resource", resource)
				return nil
			}
		case <-now.unread:
			klog.InfoS("the kubelet has forgotten us; registering again", "resource", resource)
			select {
			case <-ctx.Done():
			case <-time.After(s.again.Step()):
			}
			return nil
		}
	}
}

// socketIsGone reports that our socket is not there: an event may be about the socket of
// the process before this one, which this one removed.
func (s *Server) socketIsGone() bool {
	_, err := os.Lstat(s.socket())
	return errors.Is(err, os.ErrNotExist)
}

func (s *Server) socket() string { return filepath.Join(s.cfg.Directory, s.cfg.Socket) }

func (s *Server) options() *pluginapi.DevicePluginOptions {
	return &pluginapi.DevicePluginOptions{PreStartRequired: s.cfg.Handler != nil}
}

// session answers calls from one registration to the next; it ends streams when serving ends.
type session struct {
	*Server
	ended  context.Context
	broken chan error    // gets the error that ends serving
	unread chan struct{} // holds a token when a stream has ended
}

// GetDevicePluginOptions implements the protocol.
func (s *session) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return s.options(), nil
}

// ListAndWatch implements the protocol.
func (s *session) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	changes, stop := s.cfg.Offer.Changes()
	defer stop()
	if err := s.tell(stream); err != nil {
		return err
	}
	s.countStreams(1)
	defer func() {
		s.countStreams(-1)
		select {
		case s.unread <- struct{}{}:
		default:
		}
	}()
	for {
		select {
		case <-s.ended.Done():
			return nil
		case <-stream.Context().Done():
			return nil
		case <-changes:
			if err := s.tell(stream); err != nil {
				return err
			}
		}
	}
}

// tell sends the list of devices as it is now.
func (s *session) tell(stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: s.cfg.Offer.Devices()}); err != nil {
		return fmt.Errorf("tell the kubelet about devices: %w", err)
	}
	return nil
}

// Allocate implements the protocol.
func (s *session) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	answer := &pluginapi.AllocateResponse{}
	for _, c := range r.GetContainerRequests() {
		one := &pluginapi.ContainerAllocateResponse{}
		if s.cfg.Handler != nil {
			name, err := s.cfg.Handler.Allocate(c.GetDevicesIds())
			if err != nil {
				return nil, status.Error(codes.Internal, err.Error())
			}
			one.CdiDevices = []*pluginapi.CDIDevice{{Name: name}}
		}
		answer.ContainerResponses = append(answer.ContainerResponses, one)
	}
	return answer, nil
}

// PreStartContainer implements the protocol.
func (s *session) PreStartContainer(ctx context.Context, r *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	if s.cfg.Handler != nil {
		for _, name := range metadata.ValueFromIncomingContext(ctx, allocationKey) {
			s.cfg.Handler.Allocated(r.GetDevicesIds(), name)
		}
		if err := s.cfg.Handler.Start(ctx, r.GetDevicesIds()); err != nil {
			return nil, status.Error(codes.FailedPrecondition, err.Error())
		}
	}
	return &pluginapi.PreStartContainerResponse{}, nil
}

// GetPreferredAllocation implements the protocol; it is not announced, because
// slots carry no decision.
func (s *session) GetPreferredAllocation(context.Context, *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	return &pluginapi.PreferredAllocationResponse{}, nil
}
