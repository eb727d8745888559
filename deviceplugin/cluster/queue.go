// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// callTimeout is how long one exchange with the API server may take.
const callTimeout = 15 * time.Second

// PodKey names one exact pod, and not one of the same name that comes later.
type PodKey struct {
	types.NamespacedName
	UID types.UID
}

// KeyOf names a pod.
func KeyOf(p *corev1.Pod) PodKey { return PodKey{nameOf(p), p.UID} }

// Queue does things in the background, one at a time, and what failed again later.
// Each is named by a key, which is there once however often it is added. It is safe
// for concurrent use.
type Queue[T comparable] struct {
	queue workqueue.TypedRateLimitingInterface[T]
}

// NewQueue returns an empty queue. What fails waits for first, then twice as long each
// time, at most most.
func NewQueue[T comparable](first, most time.Duration) *Queue[T] {
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
// when do returns nil; what it returns else is logged. do gets 15 s for each attempt.
func (q *Queue[T]) Run(ctx context.Context, do func(ctx context.Context, key T) error) error {
	stop := context.AfterFunc(ctx, q.queue.ShutDown)
	defer stop()
	for {
		key, end := q.queue.Get()
		if end {
			return nil
		}
		q.handleKey(ctx, key, do)
	}
}

func (q *Queue[T]) handleKey(ctx context.Context, key T, do func(ctx context.Context, key T) error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := do(ctx, key); err != nil {
		klog.ErrorS(err, "not done; trying again later")
		q.queue.AddRateLimited(key)
	} else {
		q.queue.Forget(key)
	}
	q.queue.Done(key)
}
