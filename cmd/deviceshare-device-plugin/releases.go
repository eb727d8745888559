// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/retry"
	"deviceshare/sharing"
)

// releaseAttempt is how long one attempt to release an owner may take. Partitions
// and daemons go within seconds.
const releaseAttempt = time.Minute

// releases is the queue of owners that are gone. A release that fails is tried
// again, later each time; one that hangs holds up no other.
type releases struct {
	queue  *retry.Queue[sharing.Owner]
	broken chan struct{}

	mu sync.Mutex
	// hanging is since when an owner's attempts hang: the first has not returned,
	// or all of them ran out of time.
	hanging map[sharing.Owner]time.Time
}

func newReleases() *releases {
	return &releases{
		queue: retry.New[sharing.Owner](time.Second, 2*time.Minute), broken: make(chan struct{}), hanging: map[sharing.Owner]time.Time{},
	}
}

// add queues an owner; it does not block.
func (r *releases) add(o sharing.Owner) { r.queue.Add(o) }

// run works until ctx ends.
func (r *releases) run(ctx context.Context, release func(context.Context, sharing.Owner) error) error {
	defer close(r.broken)
	return r.queue.RunApart(ctx, releaseAttempt, func(ctx context.Context, owner sharing.Owner) error {
		r.begin(owner, time.Now())
		err := release(ctx, owner)
		r.end(owner, err)
		if err != nil {
			klog.ErrorS(err, "devices not released; trying again", "owner", owner)
		}
		return err
	})
}

func (r *releases) begin(o sharing.Owner, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, hangs := r.hanging[o]; !hangs {
		r.hanging[o] = now
	}
}

// end takes in how an attempt ended. One that says what is wrong does not hang.
func (r *releases) end(o sharing.Owner, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !errors.Is(err, context.DeadlineExceeded) {
		delete(r.hanging, o)
	}
}

// oldest is the owner whose release hangs for longest, and since when; the time is
// zero if none does.
func (r *releases) oldest() (owner sharing.Owner, since time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for o, t := range r.hanging {
		if since.IsZero() || t.Before(since) {
			owner, since = o, t
		}
	}
	return owner, since
}
