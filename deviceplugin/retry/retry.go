// SPDX-License-Identifier: Apache-2.0

// Package retry does things in the background, and what fails again later: one at
// a time, or each aside where one may hang.
package retry

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Queue is things to do, each named by a key that is there once however often it
// is added. It is safe for concurrent use.
type Queue[T comparable] struct {
	queue workqueue.TypedRateLimitingInterface[T]
}

// New returns an empty queue. What fails waits for first, then twice as long each
// time, at most most.
func New[T comparable](first, most time.Duration) *Queue[T] {
	return &Queue[T]{workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[T](first, most))}
}

// Add adds a key; it does not block.
func (q *Queue[T]) Add(key T) { q.queue.Add(key) }

// AddAfter adds a key after a while; it does not block.
func (q *Queue[T]) AddAfter(key T, d time.Duration) { q.queue.AddAfter(key, d) }

// Len is how many keys wait to be done now; those whose time has not come do not
// count.
func (q *Queue[T]) Len() int { return q.queue.Len() }

// Run does one key after another until ctx ends, which is no error. A key is done
// when do returns nil.
func (q *Queue[T]) Run(ctx context.Context, do func(ctx context.Context, key T) error) error {
	stop := context.AfterFunc(ctx, q.queue.ShutDown)
	defer stop()
	for {
		key, end := q.queue.Get()
		if end {
			return nil
		}
		q.settle(key, do(ctx, key))
	}
}

// settle puts a key back that was not done.
func (q *Queue[T]) settle(key T, err error) {
	if err != nil {
		q.queue.AddRateLimited(key)
	} else {
		q.queue.Forget(key)
	}
	q.queue.Done(key)
}

// leaving is how long RunApart waits in the end for what is under way.
const leaving = 5 * time.Second

// RunApart is Run with each key in a goroutine of its own: what hangs holds up
// nothing but its own key. The context of an attempt ends after most. A key is not
// begun again before its attempt returned, however long that takes, so that there
// is one goroutine per key at most. In the end attempts that do not heed their
// context are left behind after 5 s.
func (q *Queue[T]) RunApart(ctx context.Context, most time.Duration, do func(ctx context.Context, key T) error) error {
	stop := context.AfterFunc(ctx, q.queue.ShutDown)
	defer stop()
	var working sync.WaitGroup
	for {
		key, end := q.queue.Get()
		if end {
			break
		}
		working.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, most)
			defer cancel()
			q.settle(key, do(ctx, key))
		})
	}
	over := make(chan struct{})
	go func() { working.Wait(); close(over) }()
	select {
	case <-over:
	case <-time.After(leaving):
	}
	return nil
}
