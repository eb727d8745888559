// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// awaited is a pod whose end is waited for.
type awaited struct {
	created *corev1.Pod
	last    *corev1.Pod // what was read last of it
}

// await waits until each of the pods of an order has ended, its user loses patience, an event says
// to delete it, or it was evicted.
func (t *Traffic) await(ctx context.Context, pods []*corev1.Pod, early time.Time, events *reader) {
	var waits []*awaited
	for _, p := range pods {
		waits = append(waits, &awaited{created: p, last: p})
	}
	for ctx.Err() == nil {
		waits = slices.DeleteFunc(waits, func(a *awaited) bool { return t.hasEnded(ctx, a, events) })
		if len(waits) == 0 {
			return
		}
		if time.Now().After(early) {
			t.History.Count("orders deleted early")
			return
		}
		pause(ctx, 250*time.Millisecond)
	}
	for _, a := range waits {
		if context.Cause(ctx) == context.DeadlineExceeded {
			t.stuck("pod "+a.created.Name, a.last)
		}
	}
}

// hasEnded reads a pod, and judges it if nothing more will come of it.
func (t *Traffic) hasEnded(ctx context.Context, a *awaited, events *reader) bool {
	p, err := t.Client.CoreV1().Pods(Namespace).Get(ctx, a.created.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		a.last = p
		if p.DeletionTimestamp == nil && (p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed) {
			t.ended(p)
			return true
		}
	case apierrors.IsNotFound(err) && events.deleted(a.created.UID):
		return true
	case apierrors.IsNotFound(err):
		if final := t.farewells.of(ctx, a.created.UID); final != nil || !t.isToldToLeave(ctx, a.created.UID) {
			t.judgeGone(a.created.Name, final)
		}
		return true
	}
	return false
}

// judgeGone judges a pod that neither its user nor an event deleted, by how it looked at its end.
// That is nil if nobody could look.
func (t *Traffic) judgeGone(name string, final *corev1.Pod) {
	switch {
	case final == nil:
		t.History.Count("pods gone while the API server could not be watched")
	case !isEvicted(final):
		t.Found(Violation{"pods", fmt.Sprintf("pod %s is gone and nobody deleted it: %s", name, standing(final))})
	case isUnmet(final): // what it was given was wrong before it was killed
		t.ended(final)
	default:
		t.History.Count("pods evicted")
	}
}

// isToldToLeave reports whether an event tells that a pod was evicted, and counts it then. A
// scheduler that was killed has not told.
func (t *Traffic) isToldToLeave(ctx context.Context, uid types.UID) bool {
	var told []corev1.Event
	t.persist(ctx, "list events", func() error {
		list, err := t.Client.CoreV1().Events(Namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Preempted,involvedObject.uid=" + string(uid)})
		if err == nil {
			told = list.Items
		}
		return err
	})
	if len(told) > 0 {
		t.History.Count("pods evicted, as an event says")
	}
	return len(told) > 0
}

// isEvicted reports whether the API server evicted a pod. Only schedulers have it do so.
func isEvicted(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && (c.Reason == corev1.PodReasonPreemptionByScheduler || c.Reason == "EvictionByEvictionAPI")
	})
}
