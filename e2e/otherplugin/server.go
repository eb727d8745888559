// SPDX-License-Identifier: Apache-2.0

package otherplugin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// registerTimeout bounds one registration with a kubelet.
const registerTimeout = 10 * time.Second

// allocator answers for one container which devices it gets. The error ends the pod.
type allocator interface {
	allocate(ctx context.Context, ids []string) (*pluginapi.ContainerAllocateResponse, error)
}

// server offers the devices of one resource to a kubelet. The list never changes.
type server struct {
	pluginapi.UnimplementedDevicePluginServer
	devices  []*pluginapi.Device
	answers  allocator // nil: there is nothing to say
	ended    chan struct{}
	instance *grpc.Server
}

// serve offers devices under a resource name, through a socket in the kubelet's directory of
// device plugins, and registers them.
func serve(ctx context.Context, directory, socket, resource string, devices []*pluginapi.Device, answers allocator) (*server, error) {
	path := filepath.Join(directory, socket)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("offer %s: %w", resource, err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("offer %s: %w", resource, err)
	}
	s := &server{devices: devices, answers: answers, ended: make(chan struct{}), instance: grpc.NewServer()}
	pluginapi.RegisterDevicePluginServer(s.instance, s)
	go func() { _ = s.instance.Serve(listener) }()
	if err := register(ctx, directory, socket, resource); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// register tells the kubelet where a resource is served.
func register(ctx context.Context, directory, socket, resource string) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+filepath.Join(directory, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("register %s: %w", resource, err)
	}
	defer conn.Close()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: socket, ResourceName: resource, Options: &pluginapi.DevicePluginOptions{}})
	if err != nil {
		return fmt.Errorf("register %s: %w", resource, err)
	}
	return nil
}

// stop ends the server, as the end of its process does.
func (s *server) stop() {
	close(s.ended)
	s.instance.Stop()
}

// GetDevicePluginOptions implements the protocol.
func (s *server) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return &pluginapi.DevicePluginOptions{}, nil
}

// ListAndWatch implements the protocol.
func (s *server) ListAndWatch(_ *pluginapi.Empty, stream grpc.ServerStreamingServer[pluginapi.ListAndWatchResponse]) error {
	if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: s.devices}); err != nil {
		return err
	}
	select {
	case <-s.ended:
	case <-stream.Context().Done():
	}
	return nil
}

// Allocate implements the protocol.
func (s *server) Allocate(ctx context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	out := &pluginapi.AllocateResponse{}
	for _, c := range r.GetContainerRequests() {
		one := &pluginapi.ContainerAllocateResponse{}
		if s.answers != nil {
			var err error
			if one, err = s.answers.allocate(ctx, c.GetDevicesIds()); err != nil {
				return nil, err
			}
		}
		out.ContainerResponses = append(out.ContainerResponses, one)
	}
	return out, nil
}
