// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/apimachinery/pkg/util/wait"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// minRetryDelay is the first wait after a registration that failed. The kubelet's socket
// file is there a moment before anybody listens on it, and a kubelet refuses the
// pods that it looks at before we have registered.
const minRetryDelay = 50 * time.Millisecond

// retryBackoff are the waits after registrations that fail one after the other.
func (s *Server) retryBackoff() wait.Backoff {
	return wait.Backoff{Duration: minRetryDelay, Factor: 2, Cap: s.tick, Steps: math.MaxInt}
}

// attemptRegistration registers at a socket. Where none was seen there is no attempt: it could
// succeed at one that was made meanwhile, and its coming would be taken for the start of another
// kubelet.
func (s *Server) attemptRegistration(ctx context.Context, where *registrationTarget, resource string, at socketFile) error {
	if at == (socketFile{}) {
		return fmt.Errorf("register %s: the %s does not listen at %s", resource, where.with, where.registrarSocket())
	}
	register := func() error { return s.registerAt(ctx, where, resource) }
	if s.cfg.Registering != nil {
		return s.cfg.Registering(register)
	}
	return register()
}

// registerAt tells a kubelet, or a Proxy, about us. It gives up when we are to move.
func (s *Server) registerAt(ctx context.Context, where *registrationTarget, resource string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	go func() {
		select {
		case <-ctx.Done():
		case <-where.moved:
			cancel()
		}
	}()
	socket := where.registrarSocket()
	conn, err := dialSocket(socket)
	if err != nil {
		return fmt.Errorf("register with the %s: %w", where.with, err)
	}
	defer func() { _ = conn.Close() }()
	_, err = pluginapi.NewRegistrationClient(conn).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: s.cfg.Socket, ResourceName: resource, Options: s.pluginOptions(),
	})
	if err != nil {
		return fmt.Errorf("register %s with the %s at %s: %w", resource, where.with, socket, err)
	}
	return nil
}

// awaitKubelet returns when the socket that takes registrations is made anew, when we are to move,
// or after a while, when it is time to try all the same. A kubelet that has just started refuses
// the pods that it comes upon before we are registered: no moment may be lost.
func (s *Server) awaitKubelet(ctx context.Context, where *registrationTarget, watcher *fsnotify.Watcher, while time.Duration) {
	later := time.After(while)
	for {
		select {
		case <-ctx.Done():
			return
		case <-where.moved:
			return
		case <-later:
			return
		case e := <-watcher.Events:
			if filepath.Base(e.Name) == kubeletSocket && e.Has(fsnotify.Create) {
				s.pause = s.retryBackoff()
				return
			}
		}
	}
}
