// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// pluginSession is one registration of a plugin with a Proxy.
type pluginSession struct {
	number   int
	resource string
	conn     *grpc.ClientConn
	client   pluginapi.DevicePluginClient
	ctx      context.Context
	cancel   context.CancelFunc
}

// proxyRegistry is where plugins register while a Proxy runs.
type proxyRegistry struct {
	pluginapi.UnimplementedRegistrationServer
	*Proxy
	ended context.Context
	group *errgroup.Group
}

// Register implements the protocol. The session before goes on until this one has listed slots:
// a plugin that dies in between has changed nothing.
func (r *proxyRegistry) Register(_ context.Context, q *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	if err := checkRegistration(q); err != nil {
		klog.ErrorS(err, "registration of a device plugin refused")
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	socket := filepath.Join(r.cfg.Directory, q.GetEndpoint())
	conn, err := dialSocket(socket)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, fmt.Sprintf("connect to the device plugin at %s: %v", socket, err))
	}
	s := &pluginSession{resource: q.GetResourceName(), conn: conn, client: pluginapi.NewDevicePluginClient(conn)}
	s.ctx, s.cancel = context.WithCancel(r.ended)
	r.beginSession(s) // which looks for the plugin's mark before it is answered
	r.group.Go(func() error { r.followSession(s); return nil })
	return &pluginapi.Empty{}, nil
}

// beginSession gives a session its number. One that was still to list its slots ends.
func (p *Proxy) beginSession(s *pluginSession) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checkMark()
	p.count++
	s.number = p.count
	if p.next != nil {
		p.next.cancel()
	}
	p.next = s
}

// firstListTimeout is how long a plugin that has registered may take to list its slots.
const firstListTimeout = 10 * time.Second

func (p *Proxy) followSession(s *pluginSession) {
	defer func() { _ = s.conn.Close() }()
	defer s.cancel()
	late := time.AfterFunc(firstListTimeout, s.cancel)
	defer late.Stop()
	stream, err := s.client.ListAndWatch(s.ctx, &pluginapi.Empty{})
	for err == nil {
		var answer *pluginapi.ListAndWatchResponse
		if answer, err = stream.Recv(); err != nil {
			break
		}
		late.Stop()
		if err = checkSlots(answer.GetDevices()); err == nil {
			p.acceptList(s, answer.GetDevices())
		}
	}
	p.endSession(s, err)
}

func (p *Proxy) acceptList(s *pluginSession, slots []*pluginapi.Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current != s {
		if s.number < p.state.session {
			return
		}
		klog.InfoS("the device plugin is here", "resource", s.resource, "session", s.number, "slots", len(slots))
		if p.current != nil {
			p.current.cancel()
		}
		p.current = s
		if p.next == s {
			p.next = nil
		}
		p.renewRegistration()
	}
	p.state = p.state.afterList(s.number, s.resource, slots)
	p.notifyReaders()
}

func (p *Proxy) endSession(s *pluginSession, why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == s {
		p.next = nil
		klog.ErrorS(why, "a device plugin registered and listed no slots", "resource", s.resource, "session", s.number)
	}
	if p.current != s {
		return
	}
	p.current, p.state = nil, p.state.afterEnd(s.number, time.Now())
	if p.checkMark(); p.standing == superseded {
		return // the list is no longer ours to offer, and neither is its end
	}
	klog.InfoS("the device plugin is away; its slots stay healthy for now", "resource", s.resource, "session", s.number,
		"for", p.cfg.Grace, "why", why)
	p.notifyReaders()
	time.AfterFunc(p.cfg.Grace, p.expireGrace)
}

func (p *Proxy) expireGrace() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.checkMark(); p.standing == superseded || !p.state.hasExpired(time.Now(), p.cfg.Grace) {
		return
	}
	klog.ErrorS(errors.New(p.state.describeAbsence(time.Now())), "the device plugin is away for too long; its slots that nobody holds are unhealthy", "resource", p.state.resource)
	p.notifyReaders()
}

// Times of forwarding: how long before the kubelet's deadline it is told that the plugin is away,
// and how soon a plugin whose connection broke is asked again.
const (
	proxyMargin = 2 * time.Second
	proxyAgain  = 50 * time.Millisecond
)

// Start implements Handler: it forwards the call to the plugin. While the plugin is away, and
// when it goes away over the call, the call waits for its next session.
func (h proxyHandler) Start(ctx context.Context, slots []string) error {
	wait, cancel := context.WithTimeout(ctx, h.cfg.Patience)
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok {
		var stop context.CancelFunc
		wait, stop = context.WithDeadline(wait, deadline.Add(-proxyMargin))
		defer stop()
	}
	changes, stop := h.subscribeChanges()
	defer stop()
	for {
		if client := h.pluginClient(); client != nil {
			if err := h.forwardStart(ctx, client, slots); !isGone(ctx, err) {
				return err
			}
		} else if why := Absence(h.cfg.Directory).readNote(); why != "" {
			return errors.New(why) // it is there, and has nothing to register: to wait would not help
		}
		select {
		case <-wait.Done():
			return fmt.Errorf("the device plugin of this node does not answer the keeper, %s: the container starts when it is back", h.currentState().describeAbsence(time.Now()))
		case <-changes:
		case <-time.After(proxyAgain):
		}
	}
}

// pluginClient is the client of the session in force, nil while the plugin is away.
func (p *Proxy) pluginClient() pluginapi.DevicePluginClient {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return nil
	}
	return p.current.client
}

// allocationKey is the key under which a call carries the name that the proxy gave its allocation.
const allocationKey = "deviceshare-allocation"

// forwardStart asks the plugin. It tells it the allocation, which the plugin has not named.
func (h proxyHandler) forwardStart(ctx context.Context, client pluginapi.DevicePluginClient, slots []string) error {
	if name, ok := h.allocations.Get(slots); ok {
		ctx = metadata.AppendToOutgoingContext(ctx, allocationKey, name)
	}
	_, err := client.PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: slots})
	if err == nil || isGone(ctx, err) {
		return err
	}
	return errors.New(status.Convert(err).Message())
}

// isGone reports that a call failed because the plugin, or the connection to it, went away.
func isGone(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil {
		return false
	}
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.Canceled
}
