// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// Placements tells what became of pods that their node refused for good.
// Implementations are safe for concurrent use and must not block.
type Placements interface {
	// Started reports whether the pod has begun its work: it is not evicted then.
	Started(pod *corev1.Pod) bool
	// Evicted is told that a pod is about to go and why, Kept that it stays, with
	// what a person can do. Both are told at every refusal and every attempt.
	Evicted(pod *corev1.Pod, why string)
	Kept(pod *corev1.Pod, why string)
}

// EvictorConfig is what an Evictor works with.
type EvictorConfig struct {
	Client     kubernetes.Interface
	Placements Placements
	// Delay is how long to wait before a pod goes, so that the scheduler has seen
	// what the node publishes now and does not decide the same again; 1 s.
	Delay time.Duration
}

// Evictor gives pods back to the scheduler whose placement their node refuses for
// good. A placement cannot be changed once a pod is bound, so the pod has to go;
// whoever controls it makes another, which is placed anew. A pod that nobody would
// make again is kept, and so is one that has ever run: a refusal for good is for
// pods that have not begun.
//
// Evictor evicts in the background. It is safe for concurrent use.
type Evictor struct {
	cfg   EvictorConfig
	queue *Queue[PodKey]

	mu  sync.Mutex
	why map[PodKey]string // of those in the queue
}

// NewEvictor returns an evictor that has not started.
func NewEvictor(cfg EvictorConfig) *Evictor {
	if cfg.Delay <= 0 {
		cfg.Delay = time.Second
	}
	return &Evictor{
		cfg: cfg, why: map[PodKey]string{}, queue: NewQueue[PodKey](time.Second, time.Minute),
	}
}

// Replace notes that a pod was refused for good, and why. It does not block. A
// pod that is refused again and again is noted once.
func (e *Evictor) Replace(p *corev1.Pod, why string) {
	key := KeyOf(p)
	if kept := e.requireEvictable(p); kept != nil {
		if p.DeletionTimestamp == nil {
			e.cfg.Placements.Kept(p, why+": "+kept.Error())
		}
		return
	}
	e.mu.Lock()
	_, queued := e.why[key]
	e.why[key] = why
	e.mu.Unlock()
	if !queued {
		e.queue.AddAfter(key, e.cfg.Delay)
	}
}

// keptError says why a pod is not evicted. It ends with what a person can do.
type keptError string

func (k keptError) Error() string { return string(k) }

func (e *Evictor) requireEvictable(p *corev1.Pod) error {
	again := fmt.Sprintf("kubectl delete pod -n %s %s", p.Namespace, p.Name)
	owner := metav1.GetControllerOf(p)
	switch {
	case p.DeletionTimestamp != nil:
		return keptError("it is being deleted")
	case e.cfg.Placements.Started(p):
		return keptError("it has run already and is not evicted; to have it placed anew: " + again)
	case owner == nil:
		return keptError("no controller would make it again, so it is kept; to have it placed anew, delete it and create it again: " + again)
	case owner.Kind == "Node":
		return keptError("it belongs to the node and is not evicted")
	}
	return nil
}

// Run evicts until ctx ends. What fails is tried again later.
func (e *Evictor) Run(ctx context.Context) error {
	return e.queue.Run(ctx, func(ctx context.Context, p PodKey) error {
		if err := e.evictPod(ctx, p); err != nil {
			return err
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.why, p)
		return nil
	})
}

// evictPod looks at the pod as the API server has it and evicts exactly that state of
// it: one that began meanwhile has another version and is looked at again.
func (e *Evictor) evictPod(ctx context.Context, p PodKey) error {
	now, err := e.cfg.Client.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("look at pod %s before it is evicted: %w", p, err)
	case now.UID != p.UID || e.requireEvictable(now) != nil:
		return nil
	}
	e.mu.Lock()
	why := e.why[p]
	e.mu.Unlock()
	e.cfg.Placements.Evicted(now, why)
	// By deletion: a policy of the API server then sees the pod, and lets this node's own go only.
	err = e.cfg.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &now.UID, ResourceVersion: &now.ResourceVersion},
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("evict pod %s: %w", p, err)
	}
	klog.InfoS("pod evicted so that it is placed anew", "pod", klog.KRef(p.Namespace, p.Name), "why", why)
	return nil
}
