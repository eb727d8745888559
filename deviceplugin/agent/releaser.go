// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// releaseAttempt is how long one attempt to release an owner may take. Partitions
// and daemons go within seconds.
const releaseAttempt = time.Minute

// drainTimeout is how long Releaser.Run waits in the end for what is under way.
const drainTimeout = 5 * time.Second

// releasing takes back everything that was made for an owner.
type releasing interface {
	Release(ctx context.Context, o sharing.Owner) error
}

// Releaser takes back what was made for owners that are gone, as node.Plan says, each
// in a goroutine of its own: one that hangs holds up no other. An attempt that fails
// is repeated, later each time; none is begun before the one before has returned,
// however long that takes. It is safe for concurrent use.
type Releaser struct {
	agent   *Agent
	work    releasing
	wake    chan struct{}
	stopped chan struct{}

	mu sync.Mutex
	// running are the owners with an attempt under way, next is when the next one of an
	// owner whose last one failed may begin.
	running map[sharing.Owner]bool
	next    map[sharing.Owner]time.Time
	// hanging is since when an owner's attempts hang: the first has not returned,
	// or all of them ran out of time.
	hanging map[sharing.Owner]time.Time
}

// NewReleaser returns a releaser that has not started.
func NewReleaser(a *Agent, work releasing) *Releaser {
	return &Releaser{
		agent: a, work: work, wake: make(chan struct{}, 1), stopped: make(chan struct{}),
		running: map[sharing.Owner]bool{}, next: map[sharing.Owner]time.Time{}, hanging: map[sharing.Owner]time.Time{},
	}
}

// Gone takes in that an owner is gone; it does not block for long.
func (r *Releaser) Gone(o sharing.Owner) {
	r.agent.Send(node.OwnerGone{Owner: o})
	trySignal(r.wake)
}

// Run works until ctx ends. Attempts that do not heed their context are left behind
// after 5 s then.
func (r *Releaser) Run(ctx context.Context) error {
	defer close(r.stopped)
	var working sync.WaitGroup
	for ctx.Err() == nil {
		pause := r.startDueAttempts(time.Now(), func(o sharing.Owner) {
			working.Go(func() { r.tryRelease(ctx, o) })
		})
		select {
		case <-ctx.Done():
		case <-r.wake:
		case <-time.After(pause):
		}
	}
	over := make(chan struct{})
	go func() { working.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(drainTimeout):
	}
	return nil
}

// startDueAttempts starts what is due and returns after how long something else may be.
func (r *Releaser) startDueAttempts(now time.Time, start func(sharing.Owner)) (pause time.Duration) {
	pause = time.Hour
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, step := range node.Plan(r.agent.State()) {
		if step.Kind != node.TakeBack || r.running[step.Owner] {
			continue
		}
		if left := r.next[step.Owner].Sub(now); step.Attempts > 0 && left > 0 {
			pause = min(pause, left)
			continue
		}
		r.running[step.Owner] = true
		if _, hangs := r.hanging[step.Owner]; !hangs {
			r.hanging[step.Owner] = now
		}
		start(step.Owner)
	}
	return pause
}

func (r *Releaser) tryRelease(ctx context.Context, o sharing.Owner) {
	ctx, cancel := context.WithTimeout(ctx, releaseAttempt)
	defer cancel()
	err := r.work.Release(ctx, o)
	if err != nil {
		klog.ErrorS(err, "devices not released; trying again", "owner", o)
		r.agent.Send(node.ReleaseFailed{Owner: o})
	} else {
		r.agent.Send(node.Released{Owner: o})
	}
	r.finishAttempt(o, err, time.Now())
	trySignal(r.wake)
}

// finishAttempt takes in how an attempt ended. One that says what is wrong does not hang.
func (r *Releaser) finishAttempt(o sharing.Owner, err error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, o)
	if !errors.Is(err, context.DeadlineExceeded) {
		delete(r.hanging, o)
	}
	delete(r.next, o)
	for _, step := range node.Plan(r.agent.State()) {
		if step.Kind == node.TakeBack && step.Owner == o {
			r.next[o] = now.Add(backoffDelay(step.Attempts, time.Second, 2*time.Minute))
		}
	}
}

// backoffDelay is the wait before a repetition: first, then twice as long each time, at most
// most.
func backoffDelay(attempts int, first, most time.Duration) time.Duration {
	backoff := wait.Backoff{Duration: first, Factor: 2, Cap: most, Steps: attempts - 1}
	for backoff.Steps > 0 {
		backoff.Step()
	}
	return backoff.Duration
}

// longestHanging is the owner whose release hangs for longest, and since when; the time is
// zero if none does.
func (r *Releaser) longestHanging() (owner sharing.Owner, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for o, t := range r.hanging {
		if since.IsZero() || t.Before(since) {
			owner, since = o, t
		}
	}
	return owner, since
}
