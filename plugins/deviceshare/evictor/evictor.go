// SPDX-License-Identifier: Apache-2.0

package evictor

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

const (
	// workers is how many orders are carried out at a time.
	workers = 32
	// callTimeout bounds the calls of one attempt.
	callTimeout = 30 * time.Second
	// firstRetry and lastRetry bound the back-off after an answer that says nothing.
	firstRetry = 200 * time.Millisecond
	lastRetry  = 30 * time.Second
)

// Leadership says whether this process may write. Safe for concurrent use.
type Leadership interface {
	// Begin is called before writes, which must be over at the time that it returns; done is called
	// then. An error says that another process may lead.
	Begin() (until time.Time, done func(), err error)
}

// Wishes says who still has to leave. Safe for concurrent use.
type Wishes interface {
	IsWanted(pod types.UID) bool
}

// Reporter tells people about a pod. It must not wait for the API server.
type Reporter interface {
	Tell(object *corev1.ObjectReference, reason, message string)
}

// Eviction is one pod that has to leave.
type Eviction struct {
	Pod types.NamespacedName
	UID types.UID
	// Why is the message of the pod's condition and event.
	Why string
	// Event is the reason of the event.
	Event string
	// Condition is the reason of the condition. "" is that of a pod that makes room.
	Condition string
}

// Evictor carries out orders. Safe for concurrent use.
type Evictor struct {
	lead   Leadership
	wishes Wishes
	report Reporter
	queue  workqueue.TypedRateLimitingInterface[key]
	start  sync.Once

	mu     sync.Mutex
	orders map[key]order
}

// key identifies an order.
type key struct {
	pod  types.UID
	kind kind
}

type kind uint8

const (
	evict kind = iota
	clearNomination
)

// order is what has to be done to one pod.
type order struct {
	Eviction
	client kubernetes.Interface
	// evicted says that the API server has evicted the pod.
	evicted bool
	// failure is why the last attempt failed, nil if none did.
	failure error
}

// New returns an evictor. Its workers start with the first order.
func New(lead Leadership, wishes Wishes, report Reporter) *Evictor {
	return &Evictor{
		lead: lead, wishes: wishes, report: report, orders: map[key]order{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[key](firstRetry, lastRetry)),
	}
}

// Evict orders that a pod leave. To order it again changes nothing.
func (e *Evictor) Evict(client kubernetes.Interface, v Eviction) {
	e.enqueueOrder(key{v.UID, evict}, order{Eviction: v, client: client})
}

// ClearNomination orders that a pod which waits no longer names a node for which room is made.
func (e *Evictor) ClearNomination(client kubernetes.Interface, pod types.NamespacedName, uid types.UID) {
	e.enqueueOrder(key{uid, clearNomination}, order{Eviction: Eviction{Pod: pod, UID: uid}, client: client})
}

// Len returns how many orders have no answer yet.
func (e *Evictor) Len() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.orders)
}

// Obstacle returns why the last attempt to evict a pod failed, nil if none did or it was not
// ordered.
func (e *Evictor) Obstacle(pod types.UID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.orders[key{pod, evict}].failure
}

// Close ends the workers. Orders without an answer are dropped.
func (e *Evictor) Close() { e.queue.ShutDown() }

func (e *Evictor) enqueueOrder(k key, o order) {
	e.start.Do(func() {
		for range workers {
			go e.serveQueue()
		}
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, known := e.orders[k]; !known {
		e.orders[k] = o
		e.queue.Add(k)
	}
}

// serveQueue carries out orders until the queue is shut down.
func (e *Evictor) serveQueue() {
	for {
		k, closed := e.queue.Get()
		if closed {
			return
		}
		e.attemptOrder(k)
	}
}

// attemptOrder carries out an order, or puts it back to be tried later.
func (e *Evictor) attemptOrder(k key) {
	defer e.queue.Done(k)
	e.mu.Lock()
	o := e.orders[k]
	e.mu.Unlock()
	if err := e.carryOut(k.kind, &o); err != nil {
		klog.ErrorS(err, "Try again later", "pod", o.Pod, "failures", e.queue.NumRequeues(k)+1)
		o.failure = err
		e.mu.Lock()
		e.orders[k] = o
		e.mu.Unlock()
		e.queue.AddRateLimited(k)
		return
	}
	e.mu.Lock()
	delete(e.orders, k)
	e.mu.Unlock()
	e.queue.Forget(k)
}

// carryOut makes the calls of an order. An error says that the answer is not definite.
func (e *Evictor) carryOut(k kind, o *order) error {
	if k == evict && !o.evicted && !e.wishes.IsWanted(o.UID) {
		return nil
	}
	until, done, err := e.lead.Begin()
	if err != nil {
		return fmt.Errorf("write to pod %s: %w", o.Pod, err)
	}
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	ctx, cancel = context.WithDeadline(ctx, until)
	defer cancel()

	pod, isThere, err := readPod(ctx, o)
	switch {
	case !isThere || err != nil:
		return err
	case o.evicted:
		return writeReason(ctx, o)
	case pod.DeletionTimestamp != nil:
		return nil
	case k == clearNomination:
		return clearNominatedNode(ctx, o, pod)
	}
	return e.evictPod(ctx, o)
}

// readPod reads the pod of an order, and reports whether it is there and has not ended.
func readPod(ctx context.Context, o *order) (pod *corev1.Pod, isThere bool, err error) {
	pod, err = o.client.CoreV1().Pods(o.Pod.Namespace).Get(ctx, o.Pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("read pod %s: %w", o.Pod, err)
	}
	return pod, pod.UID == o.UID && !podutil.IsPodTerminal(pod), nil
}

// evictPod evicts a pod: the API server deletes it unless a PodDisruptionBudget forbids that. Only
// then the pod's status says why it leaves, because the API server writes a reason of its own when
// it evicts, and a pod that stays is no target of a disruption.
func (e *Evictor) evictPod(ctx context.Context, o *order) error {
	err := o.client.PolicyV1().Evictions(o.Pod.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: o.Pod.Namespace, Name: o.Pod.Name},
		DeleteOptions: metav1.NewPreconditionDeleteOptions(string(o.UID)),
	})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil: // 429 if a PodDisruptionBudget does not allow it now
		return fmt.Errorf("evict pod %s: %w", o.Pod, err)
	}
	o.evicted = true
	e.report.Tell(&corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: o.Pod.Namespace, Name: o.Pod.Name, UID: o.UID}, o.Event, o.Why)
	return writeReason(ctx, o)
}

// writeReason has the pod's status say why it leaves, by one call, which needs no version of the
// pod. One that is gone is no error.
func writeReason(ctx context.Context, o *order) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": o.UID},
		"status": map[string]any{"conditions": []corev1.PodCondition{{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: cmp.Or(o.Condition, corev1.PodReasonPreemptionByScheduler), Message: o.Why,
			LastTransitionTime: metav1.Now(),
		}}},
	})
	if err != nil {
		return fmt.Errorf("write the reason of pod %s: %w", o.Pod, err)
	}
	_, err = o.client.CoreV1().Pods(o.Pod.Namespace).Patch(ctx, o.Pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of pod %s: %w", o.Pod, err)
	}
	return nil
}

// clearNominatedNode takes the nominated node from a pod that waits.
func clearNominatedNode(ctx context.Context, o *order, pod *corev1.Pod) error {
	if pod.Status.NominatedNodeName == "" || pod.Spec.NodeName != "" {
		return nil
	}
	pod = pod.DeepCopy()
	pod.Status.NominatedNodeName = ""
	_, err := o.client.CoreV1().Pods(o.Pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status of pod %s: %w", o.Pod, err)
	}
	return nil
}
