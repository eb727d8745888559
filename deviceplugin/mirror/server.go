// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"k8s.io/klog/v2"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/sharing"
)

// retryAfter is the wait after the socket could not be served.
const retryAfter = 5 * time.Second

// Records is what containers have, by the device plugin's checkpoint.
type Records interface{ All() []checkpoint.Record }

// Config is what a server works with.
type Config struct {
	// Socket is where exporters ask, Kubelet where this one asks.
	Socket, Kubelet string
	// Resource is the name by which the kubelet knows shares.
	Resource kubelet.Resource
	Records  Records
	// Devices are those of the node.
	Devices func() []sharing.Device
}

// Server serves the podresources API. Its methods are safe for concurrent use.
type Server struct {
	podresources.UnimplementedPodResourcesListerServer
	cfg Config
	ask podresources.PodResourcesListerClient
}

// Run serves the socket until the context is done, whatever happens to it.
func Run(ctx context.Context, cfg Config) error {
	ask, conn, err := kubelet.DialLister(cfg.Kubelet)
	if err != nil {
		return err
	}
	defer conn.Close()
	s := &Server{cfg: cfg, ask: ask}
	for {
		if err := s.serveSocket(ctx); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, "Exporters cannot ask which pod has which device; trying again", "socket", cfg.Socket)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryAfter):
		}
	}
}

// serveSocket serves the socket until it fails, or the context is done.
func (s *Server) serveSocket(ctx context.Context) error {
	listener, err := kubelet.ListenAt(s.cfg.Socket)
	if err != nil {
		return fmt.Errorf("serve podresources: %w", err)
	}
	// It names the pods of all tenants.
	if err := os.Chmod(s.cfg.Socket, 0o600); err != nil {
		listener.Close()
		return fmt.Errorf("serve podresources: %w", err)
	}
	server := grpc.NewServer()
	podresources.RegisterPodResourcesListerServer(server, s)
	stop := context.AfterFunc(ctx, server.Stop)
	defer stop()
	klog.InfoS("Exporters can ask which pod has which device", "socket", s.cfg.Socket)
	return server.Serve(listener)
}

// List implements podresources.PodResourcesListerServer.
func (s *Server) List(ctx context.Context, q *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	// Records are read after the answer: what the kubelet says of a container that was started
	// meanwhile has a record by then, or none that can be wrong.
	said, err := s.ask.List(ctx, q)
	if err != nil {
		return nil, err
	}
	records, out := s.cfg.Records.All(), &podresources.ListPodResourcesResponse{}
	for _, pod := range said.GetPodResources() {
		out.PodResources = append(out.PodResources, withTrueDevices(pod, s.cfg.Resource.ResourceName(), records))
	}
	return out, nil
}

// Get implements podresources.PodResourcesListerServer.
func (s *Server) Get(ctx context.Context, q *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error) {
	said, err := s.ask.Get(ctx, q)
	if err != nil {
		return nil, err
	}
	return &podresources.GetPodResourcesResponse{PodResources: withTrueDevices(said.GetPodResources(), s.cfg.Resource.ResourceName(), s.cfg.Records.All())}, nil
}

// GetAllocatableResources implements podresources.PodResourcesListerServer.
func (s *Server) GetAllocatableResources(ctx context.Context, q *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	said, err := s.ask.GetAllocatableResources(ctx, q)
	if err != nil {
		return nil, err
	}
	return withTrueOffer(said, s.cfg.Resource.ResourceName(), s.cfg.Devices()), nil
}
