// SPDX-License-Identifier: Apache-2.0

package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Timing is how long a lease lasts, for how long its holder tries to renew it, and how often
// everybody tries.
type Timing struct {
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
}

// ErrLost is returned when another process leads. What this one was doing goes on, so the process
// must end.
var ErrLost = errors.New("the lease was lost to another scheduler, or could not be renewed")

// Run waits until this process leads and then works. It returns what work returned, ErrLost, or nil
// when ctx ended: then the lease has been given back, after the last write of the term. work must
// return when ctx ends, by itself.
func Run(ctx context.Context, lock resourcelock.Interface, timing Timing, term *Term, work func() error) error {
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	finish := func() {
		term.drainWrites()
		stop()
	}
	defer context.AfterFunc(ctx, finish)()
	worked := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            renewals{lock, term, timing.LeaseDuration},
		LeaseDuration:   timing.LeaseDuration,
		RenewDeadline:   timing.RenewDeadline,
		RetryPeriod:     timing.RetryPeriod,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				worked <- work()
				finish()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("prepare the election of a leader: %w", err)
	}
	elector.Run(electing)
	switch {
	case ctx.Err() != nil:
		return nil
	case electing.Err() == nil:
		return ErrLost
	}
	return <-worked
}

// renewals is a lock that tells the term of what becomes of the lease.
type renewals struct {
	resourcelock.Interface
	term  *Term
	lease time.Duration
}

func (r renewals) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	began := r.term.now()
	err := r.Interface.Create(ctx, record)
	if err == nil {
		r.term.extendTo(began.add(r.lease))
	}
	return err
}

func (r renewals) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity != r.Identity() {
		// client-go gives back what it believes to hold, which after a sleep may be another's.
		if !r.term.mayRelease() {
			return ErrLost
		}
		return r.Interface.Update(ctx, record)
	}
	began := r.term.now()
	err := r.Interface.Update(ctx, record)
	if err == nil {
		r.term.extendTo(began.add(r.lease))
	}
	return err
}
