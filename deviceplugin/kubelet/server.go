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
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
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
	// Forget is told that others may have named allocations which we were not told of.
	Forget()
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
	// Keeper is the directory in which a Proxy takes registrations in the kubelet's place; "" if
	// there is none. While no Proxy takes ours, we register with the kubelet all the same.
	Keeper string
	// Move says when to go from one to the other. It is needed with a Keeper.
	Move MoveTimes
	// Socket is the file name of our socket in either directory.
	Socket string
	Offer  Offer
	// Handler may be nil for a resource that needs no preparation.
	Handler Handler
	// Taken is told that Server.Taken may answer differently. It must not block, and
	// may be nil.
	Taken func()
	// Registering is called with each registration and makes it, or says why not. It may be nil.
	Registering func(register func() error) error
}

// Server serves one resource until told to stop.
type Server struct {
	pluginapi.UnimplementedDevicePluginServer
	cfg  ServerConfig
	tick time.Duration // between looks at the resource name; at most between attempts
	// pause is how long to wait after the next registration that fails, and again after
	// the next one whose list is no longer read; both are Run's own.
	pause, again wait.Backoff
	now          atomic.Pointer[session] // the one that is served, nil between two
	// keeperAnswers is whether the keeper gave a sign of life when it was asked last.
	keeperAnswers atomic.Bool

	mu      sync.Mutex
	stay    stay
	where   *registrationTarget // that of stay
	arrived *registrationTarget // that of the latest session
	// overtaken is whether a Proxy may have registered after we moved away from it.
	overtaken bool
}

// NewServer returns a server that has not started.
func NewServer(cfg ServerConfig) *Server {
	s := &Server{cfg: cfg, tick: 3 * time.Second}
	s.pause, s.again = s.retryBackoff(), s.retryBackoff()
	s.resetTarget()
	return s
}

// Taken reports whether the kubelet has taken the list of devices and still watches
// it, and will do so for a while. While it does not, it refuses every pod that asks for the
// resource, for good (UnexpectedAdmissionError). It is safe for concurrent use.
func (s *Server) Taken() bool {
	now := s.now.Load()
	return now != nil && now.isTaken()
}

// IsHeld reports whether the kubelet goes on knowing the devices when we end, because a Proxy is
// registered for us. It is safe for concurrent use.
func (s *Server) IsHeld() bool {
	now := s.now.Load()
	return now != nil && now.where.with == theKeeper && now.isTaken()
}

func (s *Server) setSession(now *session) {
	s.now.Store(now)
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
	s.resetTarget()
	var following sync.WaitGroup
	defer following.Wait()
	if s.cfg.Keeper != "" {
		following.Go(func() { s.followKeeper(ctx) })
	}
	for ctx.Err() == nil {
		where := s.currentTarget()
		s.noteArrival(where)
		err := s.runSession(ctx, where)
		if ctx.Err() == nil && where.with == theKubelet && s.currentTarget() != where {
			sleepContext(ctx, streamEndGrace)
		}
		if err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "device plugin server stopped; starting it again", "resource", s.cfg.Offer.ResourceName(), "in", s.tick)
			select {
			case <-ctx.Done():
			case <-where.moved:
			case <-time.After(s.tick):
			}
		}
	}
	return nil
}

// runSession serves from one registration to the next.
func (s *Server) runSession(ctx context.Context, where *registrationTarget) error {
	watcher, err := where.watchDirectory()
	if err != nil {
		return err
	}
	defer func() { _ = watcher.Close() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	now, stop, err := s.startSession(ctx, where)
	if err != nil {
		return err
	}
	defer stop()
	resource := s.cfg.Offer.ResourceName()
	before := socketAt(where.registrarSocket())
	if err := s.attemptRegistration(ctx, where, resource, before); err != nil {
		klog.ErrorS(err, "not registered; waiting", "for", where.with, "resource", resource)
		s.awaitKubelet(ctx, where, watcher, s.pause.Step())
		return nil
	}
	if before.isSameAs(socketAt(where.registrarSocket())) {
		now.at = before
	}
	s.pause = s.retryBackoff()
	klog.InfoS("registered", "with", where.with, "resource", resource, "slots", len(s.cfg.Offer.Devices()))
	if where.with == theKeeper {
		over := make(chan struct{})
		go func() { defer close(over); now.followProxy(ctx) }()
		defer func() { cancel(); <-over }()
	}
	err = s.watchSession(ctx, watcher, now, resource)
	if s.currentTarget() != where {
		s.drainSession(ctx, now)
	}
	return err
}

// watchDirectory watches a place's directory. It does so before registering, so that no restart in
// between is missed.
func (p *registrationTarget) watchDirectory() (*fsnotify.Watcher, error) {
	if p.with == theKeeper {
		if err := os.MkdirAll(p.directory, 0o700); err != nil {
			return nil, fmt.Errorf("make the keeper's directory: %w", err)
		}
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, fmt.Errorf("watch the directory of the %s: %w", p.with, err)
	}
	if err := watcher.Add(p.directory); err != nil {
		_ = watcher.Close()
		return nil, fmt.Errorf("watch %s, is this the directory of the %s? %w", p.directory, p.with, err)
	}
	return watcher, nil
}

// watchSession returns nil when it is time to register again. News of the socket at which we are
// registered is no reason: a kubelet that came after we had begun to watch was there when we
// registered, and a second time could make it forget us.
//
// A kubelet that reads no list of ours has forgotten us, whatever it answered when
// we registered: it forgets by the resource's name when it notices that a stream
// has ended, and that may be the stream of the process before this one, after this
// one has registered. It then counts the resource as gone until somebody
// registers.
func (s *Server) watchSession(ctx context.Context, watcher *fsnotify.Watcher, now *session, resource string) error {
	ticker := time.NewTicker(s.tick)
	defer ticker.Stop()
	for ticks := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-now.where.moved:
			return nil
		case err := <-now.broken:
			return fmt.Errorf("serve the kubelet: %w", err)
		case err := <-watcher.Errors:
			return fmt.Errorf("watch the directory of the %s: %w", now.where.with, err)
		case e := <-watcher.Events:
			restarted := filepath.Base(e.Name) == kubeletSocket && e.Has(fsnotify.Create) && !now.at.isSameAs(socketAt(now.where.registrarSocket()))
			removed := filepath.Base(e.Name) == s.cfg.Socket && e.Has(fsnotify.Remove) && s.socketIsGone(now.where)
			if restarted || removed {
				klog.InfoS("the kubelet restarted; registering again", "resource", resource, "event", e.String())
				return nil
			}
		case <-ticker.C:
			if name := s.cfg.Offer.ResourceName(); name != resource {
				klog.InfoS("the resource was renamed; registering again", "from", resource, "to", name)
				return nil
			}
			if ticks++; now.streams.Load() > 0 {
				ticks, s.again = 0, s.retryBackoff()
			}
			if ticks > 1 {
				klog.InfoS("the kubelet reads no list; registering again", "resource", resource)
				return nil
			}
		case <-now.unread:
			klog.InfoS("our list is no longer read; registering again", "by", now.where.with, "resource", resource)
			if now.where.with == theKeeper {
				s.recordKeeperCheck(false)
			}
			s.awaitKubelet(ctx, now.where, watcher, s.again.Step())
			return nil
		}
	}
}

// socketIsGone reports that our socket is not there: an event may be about the socket of
// the process before this one, which this one removed.
func (s *Server) socketIsGone(where *registrationTarget) bool {
	_, err := os.Lstat(filepath.Join(where.directory, s.cfg.Socket))
	return errors.Is(err, os.ErrNotExist)
}

func (s *Server) pluginOptions() *pluginapi.DevicePluginOptions {
	return &pluginapi.DevicePluginOptions{PreStartRequired: s.cfg.Handler != nil}
}
