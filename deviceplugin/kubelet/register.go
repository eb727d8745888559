// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// quick is the first wait after a registration that failed. The kubelet's socket
// file is there a moment before anybody listens on it, and a kubelet refuses the
// pods that it looks at before we have registered.
const quick = 50 * time.Millisecond

// pauses are the waits after registrations that fail one after the other.
func (s *Server) pauses() wait.Backoff {
	return wait.Backoff{Duration: quick, Factor: 2, Cap: s.tick, Steps: math.MaxInt}
}

// kubeletSocket is where the kubelet takes registrations, in its directory.
const kubeletSocket = "kubelet.sock"

// connect makes a client of a socket, which connects when it is used. A process that was killed may
// accept a connection over its death, and a call then waits for the next attempt: gRPC would make
// it after a second, and the kubelet admits pods a second after its start.
func connect(socket string) (*grpc.ClientConn, error) {
	soon := backoff.Config{BaseDelay: quick, Multiplier: 2, Jitter: 0.2, MaxDelay: time.Second}
	return grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: soon, MinConnectTimeout: 5 * time.Second}))
}

// register tells the kubelet about us.
func (s *Server) register(ctx context.Context, resource string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	socket := filepath.Join(s.cfg.Directory, kubeletSocket)
	conn, err := connect(socket)
	if err != nil {
		return fmt.Errorf("register with the kubelet: %w", err)
	}
	defer func() { _ = conn.Close() }()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: s.cfg.Socket, ResourceName: resource, Options: s.options(),
	})
	if err != nil {
		return fmt.Errorf("register %s with the kubelet at %s: %w", resource, socket, err)
	}
	return nil
}

// awaitKubelet returns when the kubelet's socket is made anew, or it is time to try
// all the same: at first soon, then ever later.
func (s *Server) awaitKubelet(ctx context.Context, watcher *fsnotify.Watcher) {
	later := time.After(s.pause.Step())
	for {
		select {
		case <-ctx.Done():
			return
		case <-later:
			return
		case e := <-watcher.Events:
			if filepath.Base(e.Name) == kubeletSocket && e.Has(fsnotify.Create) {
				s.pause = s.pauses()
				return
			}
		}
	}
}

// followProxy takes in whether the kubelet has taken the list of the Proxy, until ctx ends. It
// has not while the Proxy does not say so.
func (s *Server) followProxy(ctx context.Context) {
	socket := filepath.Join(s.cfg.Directory, kubeletSocket)
	conn, err := connect(socket)
	if err != nil {
		klog.ErrorS(err, "the proxy cannot be asked about the kubelet", "socket", socket)
		return
	}
	defer func() { _ = conn.Close() }()
	for ctx.Err() == nil {
		stream, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
		for err == nil {
			var answer *healthpb.HealthCheckResponse
			answer, err = stream.Recv()
			takes := answer.GetStatus() == healthpb.HealthCheckResponse_SERVING
			if s.proxyTaken.Swap(takes) != takes {
				s.tellTaken()
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(quick):
		}
	}
}
