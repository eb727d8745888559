// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/deviceplugin/cdi"
)

// session answers calls from one registration to the next; it ends streams when serving ends.
type session struct {
	*Server
	where  *registrationTarget
	ended  context.Context
	broken chan error    // gets the error that ends serving
	unread chan struct{} // holds a token when a stream has ended
	// at is the socket at which the registration was taken, none if that changed meanwhile.
	at socketFile
	// streams is how many lists of devices were taken and are still watched.
	streams atomic.Int32
	// proxyTaken is whether the kubelet has taken the list of the Proxy.
	proxyTaken atomic.Bool
	// withdrawn is set a while before the session ends on purpose.
	withdrawn atomic.Bool
}

// startSession serves on our socket at a place.
func (s *Server) startSession(ctx context.Context, where *registrationTarget) (now *session, stop func(), err error) {
	listener, err := ListenAt(filepath.Join(where.directory, s.cfg.Socket))
	if err != nil {
		return nil, nil, err
	}
	server := grpc.NewServer()
	now = &session{Server: s, where: where, ended: ctx, broken: make(chan error, 1), unread: make(chan struct{}, 1)}
	pluginapi.RegisterDevicePluginServer(server, now)
	go func() { now.broken <- server.Serve(listener) }()
	s.setSession(now)
	return now, func() { s.setSession(nil); server.Stop() }, nil
}

// isTaken reports whether the kubelet has taken the list of this session and still watches it.
func (s *session) isTaken() bool {
	return s.streams.Load() > 0 && !s.withdrawn.Load() &&
		(s.where.with == theKubelet || s.proxyTaken.Load() && s.keeperAnswers.Load())
}

func (s *session) countStreams(more int32) {
	s.streams.Add(more)
	s.tellTaken()
}

func (s *session) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return s.pluginOptions(), nil
}

func (s *session) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	changes, stop := s.cfg.Offer.Changes()
	defer stop()
	told, err := s.sendDevices(stream, nil)
	if err != nil {
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
			if told, err = s.sendDevices(stream, told); err != nil {
				return err
			}
		}
	}
}

// sendDevices sends the list of devices as it is now, and returns it. The kubelet writes a file for
// each list that it is told, so one that was told before is not repeated.
func (s *session) sendDevices(stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse], before *pluginapi.ListAndWatchResponse) (*pluginapi.ListAndWatchResponse, error) {
	now := &pluginapi.ListAndWatchResponse{Devices: s.cfg.Offer.Devices()}
	if before != nil && proto.Equal(before, now) {
		return before, nil
	}
	if err := stream.Send(now); err != nil {
		return nil, fmt.Errorf("tell the kubelet about devices: %w", err)
	}
	return now, nil
}

// Allocate implements the protocol. A runtime that knows no CDI ignores the allocation's name; the
// variable keeps it from giving the container every device instead.
func (s *session) Allocate(_ context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	answer := &pluginapi.AllocateResponse{}
	none := cdi.NoneVisible()
	for _, c := range r.GetContainerRequests() {
		one := &pluginapi.ContainerAllocateResponse{Envs: map[string]string{none.Name: none.Value}}
		if s.cfg.Handler != nil {
			name, err := s.cfg.Handler.Allocate(c.GetDevicesIds())
			if err != nil {
				return nil, status.Error(codes.Internal, err.Error())
			}
			one.CdiDevices = []*pluginapi.CDIDevice{{Name: cdi.DriverName}, {Name: name}}
		}
		answer.ContainerResponses = append(answer.ContainerResponses, one)
	}
	return answer, nil
}

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
