// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
)

// registrationTarget is where a Server registers until it moves.
type registrationTarget struct {
	with      registrar
	directory string
	moved     chan struct{} // closed when the Server is to be registered elsewhere
}

func (p *registrationTarget) registrarSocket() string {
	return filepath.Join(p.directory, kubeletSocket)
}

func (s *Server) currentTarget() *registrationTarget {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.where
}

func (s *Server) resetTarget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stay = stay{with: theKubelet}
	if s.cfg.Keeper != "" {
		s.stay = firstStay(time.Now())
	}
	s.where, s.arrived, s.overtaken = s.targetFor(s.stay.with), nil, false
}

func (s *Server) targetFor(with registrar) *registrationTarget {
	directory := s.cfg.Directory
	if with == theKeeper {
		directory = s.cfg.Keeper
	}
	return &registrationTarget{with: with, directory: directory, moved: make(chan struct{})}
}

// lookEvery is how much time passes between two looks at the keeper.
func (t MoveTimes) lookEvery() time.Duration { return min(t.Patience/10, 500*time.Millisecond) }

// answerTimeout is how long the keeper may take for an answer. A look waits for two.
func (t MoveTimes) answerTimeout() time.Duration { return min(t.Patience*2/5, 2*time.Second) }

// streamEndGrace is how long the kubelet is given to notice that a stream has ended. It forgets by
// the resource's name, so it would forget whoever has registered before it notices.
const streamEndGrace = 500 * time.Millisecond

// followKeeper looks at the keeper until ctx ends, and decides where to be registered.
func (s *Server) followKeeper(ctx context.Context) {
	conn, err := dialSocket(filepath.Join(s.cfg.Keeper, kubeletSocket))
	if err != nil {
		klog.ErrorS(err, "the keeper cannot be asked whether it is here", "directory", s.cfg.Keeper)
		return
	}
	defer func() { _ = conn.Close() }()
	client := healthpb.NewHealthClient(conn)
	for ctx.Err() == nil {
		err := s.checkKeeper(ctx, client)
		if status.Code(err) == codes.DeadlineExceeded {
			err = s.checkKeeper(ctx, client) // it may have been we who did not run
		}
		if ctx.Err() != nil {
			return
		}
		if s.keeperAnswers.Swap(err == nil) != (err == nil) {
			s.tellTaken()
		}
		s.recordKeeperCheck(err == nil)
		sleepContext(ctx, s.cfg.Move.lookEvery())
	}
}

func (s *Server) checkKeeper(ctx context.Context, client healthpb.HealthClient) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Move.answerTimeout())
	defer cancel()
	_, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
	return err
}

// recordKeeperCheck takes in a look at the keeper, and moves if that follows. A keeper that we are
// with must read our list, too.
func (s *Server) recordKeeperCheck(answers bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.arrived != s.where {
		return // we are on our way
	}
	before, now := s.stay.with, s.now.Load()
	reads := before == theKubelet || now != nil && now.streams.Load() > 0
	s.stay = s.stay.afterLook(answers && reads, time.Now(), s.cfg.Move)
	switch {
	case s.stay.with != before:
		klog.InfoS("the registration moves", "from", before, "to", s.stay.with, "resource", s.cfg.Offer.ResourceName())
		s.overtaken = s.stay.with == theKubelet && s.supersedeKeeper()
		s.moveTarget()
	case s.overtaken && !s.isKeeperRegistering():
		klog.InfoS("the keeper may have registered after we did; registering again", "resource", s.cfg.Offer.ResourceName())
		s.overtaken = false
		s.moveTarget()
	}
}

// moveTarget ends the session, and has the next one at the place where we are to be. The caller
// holds the lock.
func (s *Server) moveTarget() {
	old := s.where
	s.where = s.targetFor(s.stay.with)
	close(old.moved)
}

// supersedeKeeper leaves the mark for the keeper, and reports whether it may register all the same.
func (s *Server) supersedeKeeper() bool {
	if err := handover(s.cfg.Keeper).writeMark(); err != nil {
		klog.ErrorS(err, "a keeper that comes back may offer the kubelet an old list")
	}
	return s.isKeeperRegistering()
}

func (s *Server) isKeeperRegistering() bool {
	is, err := handover(s.cfg.Keeper).isRegistering()
	if err != nil {
		klog.ErrorS(err, "if the keeper registers after us, the kubelet forgets us when it ends")
	}
	return is
}

// noteArrival is called before each session. Only now the keeper's time begins, if it is with it. A
// Proxy names allocations of which it tells us when their containers start, and not at all if it
// was replaced meanwhile.
func (s *Server) noteArrival(where *registrationTarget) {
	s.mu.Lock()
	before := s.arrived
	if before != where {
		s.arrived, s.stay = where, s.stay.restartedAt(time.Now())
	}
	s.mu.Unlock()
	ofProxy := where.with == theKeeper || before != nil && before.with == theKeeper
	if s.cfg.Handler != nil && ofProxy {
		s.cfg.Handler.Forget()
	}
}

// drainSession makes ready for the end of a session with the kubelet, which goes on being served
// until the pods that are on their way have come.
func (s *Server) drainSession(ctx context.Context, now *session) {
	if now.where.with != theKubelet || !now.isTaken() {
		return
	}
	now.withdrawn.Store(true)
	s.tellTaken()
	sleepContext(ctx, s.cfg.Move.Leave)
}

// followProxy takes in whether the kubelet has taken the list of the Proxy, until ctx ends. It
// has not while the Proxy does not say so.
func (s *session) followProxy(ctx context.Context) {
	socket := s.where.registrarSocket()
	conn, err := dialSocket(socket)
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
			if err == nil {
				s.keeperAnswers.Store(true)
			}
			takes := answer.GetStatus() == healthpb.HealthCheckResponse_SERVING
			if s.proxyTaken.Swap(takes) != takes {
				s.tellTaken()
			}
		}
		sleepContext(ctx, minRetryDelay)
	}
}

func sleepContext(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
