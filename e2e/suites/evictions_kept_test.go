// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
)

// A victim takes its time. Its place is kept: none of the pods gets it that come meanwhile and ask
// for the same.
func (e *evictions) testKept(t *testing.T) {
	ctx, u := e.user(t, "kept")
	run(ctx, t, u, e.fills(0), ignoresSIGTERM(e.pod("victim", low, oneDevice(), 0)))
	e.wish(ctx, t, u, "wish")
	p := e.awaitEviction(ctx, t, u, "victim", "wish")
	e.requireWaitingFor(ctx, t, u, "wish", "victim")
	t.Logf("kubectl deviceshare why:\n%s", e.deviceshare(ctx, t, "why", "wish", "-n", u.Namespace()))
	thieves := 50
	if testing.Short() {
		thieves = 20
	}
	var names []string
	for i := range thieves {
		names = append(names, fmt.Sprintf("thief-%02d", i))
		if err := u.Create(ctx, e.pod(names[i], low, oneDevice()).Build()); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range names {
		requireWaiting(ctx, t, u, name)
	}
	e.end(ctx, t, p)
	e.requireOnDevice(ctx, t, u, "wish", 0)
	areHeldBack(ctx, t, u, names...)
	e.requireEvicted(t, u, "victim")
	if err := u.Delete(ctx, names...); err != nil {
		t.Error(err)
	}
}

// A victim has ended, but its object stays for a finalizer. What it had is given to the pod for
// which it left.
func (e *evictions) testFinalizer(t *testing.T) {
	ctx, u := e.user(t, "finalizer")
	stays := func(p *corev1.Pod) { p.Finalizers = []string{"example.com/stays"} }
	run(ctx, t, u, e.fills(0), e.pod("victim", low, oneDevice(), 0).Edit(stays))
	t.Cleanup(func() { e.dropFinalizers(t, u, "victim") })
	e.wish(ctx, t, u, "wish")
	e.requireOnDevice(ctx, t, u, "wish", 0)
	if p, err := u.Get(ctx, "victim"); err != nil || p.DeletionTimestamp == nil {
		t.Errorf("the victim is gone, or stays: %v", err)
	}
	e.requireEvicted(t, u, "victim")
}

func (e *evictions) dropFinalizers(t *testing.T, u *user.User, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
	defer cancel()
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	if _, err := e.cluster.Client().CoreV1().Pods(u.Namespace()).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
}

// The scheduler is killed after the eviction and before the victim has ended. The next one knows
// for whom the place is, and evicts nobody else.
func (e *evictions) testSchedulerKilled(t *testing.T) {
	ctx, u := e.user(t, "scheduler-killed")
	run(ctx, t, u, e.fills(0, 1), ignoresSIGTERM(e.pod("victim", low, oneDevice(), 0)), e.pod("next", middle, oneDevice(), 1))
	e.wish(ctx, t, u, "wish")
	victim := e.awaitEviction(ctx, t, u, "victim", "wish")
	if err := e.cluster.Kill(sandbox.Scheduler); err != nil {
		t.Fatal(err)
	}
	if err := e.cluster.WaitReady(ctx, sandbox.Scheduler); err != nil {
		t.Fatal(err)
	}
	if err := u.Create(ctx, e.pod("thief", low, oneDevice()).Build()); err != nil {
		t.Fatal(err)
	}
	requireWaiting(ctx, t, u, "thief") // the next scheduler has looked at all
	e.requireWaitingFor(ctx, t, u, "wish", "victim")
	e.end(ctx, t, victim)
	e.requireOnDevice(ctx, t, u, "wish", 0)
	areHeldBack(ctx, t, u, "thief")
	e.requireEvicted(t, u, "victim")
	if err := u.Delete(ctx, "thief"); err != nil {
		t.Error(err)
	}
}

// Evictions are turned off again while a victim has not ended. Its place is kept, and nobody else
// is evicted.
func (e *evictions) testTurnedOff(t *testing.T) {
	ctx, u := e.user(t, "turned-off")
	run(ctx, t, u, e.fills(0, 1), ignoresSIGTERM(e.pod("victim", low, oneDevice(), 0)), e.pod("next", middle, oneDevice(), 1))
	e.wish(ctx, t, u, "wish")
	victim := e.awaitEviction(ctx, t, u, "victim", "wish")
	edited := time.Now()
	e.setActions(ctx, t, shippedActions, quietActions)
	e.awaitActions(ctx, t, quietActions)
	t.Logf("the scheduler goes by the edit after %.0f s", time.Since(edited).Seconds())
	e.wish(ctx, t, u, "late")
	t.Logf("the later pod is told: %s", requireWaiting(ctx, t, u, "late"))
	e.end(ctx, t, victim)
	e.requireOnDevice(ctx, t, u, "wish", 0)
	areHeldBack(ctx, t, u, "late")
	e.requireEvicted(t, u, "victim")

	e.setActions(ctx, t, quietActions, shippedActions)
	e.hurryConfig(ctx, t)
	e.requireOnDevice(ctx, t, u, "late", 1)
	e.requireEvicted(t, u, "victim", "next")
}

// wish creates a pod of high priority that wants a whole device.
func (e *evictions) wish(ctx context.Context, t *testing.T, u *user.User, name string) {
	t.Helper()
	if err := u.Create(ctx, e.pod(name, high, oneDevice()).Build()); err != nil {
		t.Fatal(err)
	}
}

// awaitEviction waits until a pod leaves that was told why, in its condition and by an event, and
// returns it. Kubernetes' Eviction API writes a condition of its own in between.
func (e *evictions) awaitEviction(ctx context.Context, t *testing.T, u *user.User, victim, wish string) *corev1.Pod {
	t.Helper()
	want := sentence(u, wish, 100, 10)
	p, err := u.Wait(ctx, victim, "leaving for "+wish, func(p *corev1.Pod) bool {
		return p.DeletionTimestamp != nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == corev1.PodReasonPreemptionByScheduler && c.Message == want
		})
	})
	if err != nil {
		t.Fatal(err)
	}
	e.requireTold(ctx, t, u, victim, want)
	return p
}

// requireWaitingFor expects that a pod waits for a victim to leave and is told so.
func (e *evictions) requireWaitingFor(ctx context.Context, t *testing.T, u *user.User, wish, victim string) {
	t.Helper()
	want := fmt.Sprintf("starts on node %s when these pods have left, which were told to make room: %s/%s", sandbox.NodeName, u.Namespace(), victim)
	p, err := u.Wait(ctx, wish, "told for whom it waits", func(p *corev1.Pod) bool { return unschedulable(p) == want })
	if err != nil {
		t.Fatal(err)
	}
	if p.Status.NominatedNodeName != sandbox.NodeName {
		t.Errorf("pod %s has the nominated node %q", wish, p.Status.NominatedNodeName)
	}
}

// end ends a pod that ignores SIGTERM.
func (e *evictions) end(ctx context.Context, t *testing.T, p *corev1.Pod) {
	t.Helper()
	if err := e.cluster.SignalPod(ctx, p, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
