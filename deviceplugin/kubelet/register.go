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
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/apimachinery/pkg/util/wait"
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

// register tells the kubelet about us.
func (s *Server) register(ctx context.Context, resource string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	socket := filepath.Join(s.cfg.Directory, kubeletSocket)
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
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
