// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// testSchedulers runs two schedulers and takes the leading one away, in each way in which that
// happens, while more pods want a device than there are devices. The other one goes on: no device
// is given twice, no pod is lost, and one that was frozen does no harm when it wakes.
func testSchedulers(t *testing.T, w *world) {
	ctx, u := w.user(t, "schedulers", 5*time.Minute)
	// The lease is as long as the chart has it: other suites have a shorter one.
	w.upgrade(ctx, t, "scheduler.replicas=2", "scheduler.extraArgs={--schedule-period=200ms}")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
		defer cancel()
		w.upgrade(ctx, t)
	})
	stopWatch := w.watchLedger(ctx, t)
	began := time.Now()
	coming := arrive(ctx, t, gpus+3, func(ctx context.Context, lane, n int) bool {
		return takesADevice(ctx, t, u, fmt.Sprintf("lane%d-%d", lane, n))
	})
	coming.until(gpus)
	losses := w.lossesOfALeader(ctx)
	losses = losses[len(losses)-rounds(1, len(losses)):]
	var lost []time.Time
	for _, l := range losses {
		leader, holder := w.leader(ctx, t, "")
		before := coming.done.Load()
		lost = append(lost, time.Now())
		if err := l.lose(leader); err != nil {
			t.Fatal(err)
		}
		w.leader(ctx, t, holder)
		coming.until(before + gpus)
		if l.back != nil {
			if err := l.back(leader); err != nil {
				t.Fatal(err)
			}
			w.restarted(ctx, t, leader)
		}
		coming.until(before + gpus + int64(rounds(1, 2*gpus)))
	}
	t.Logf("%d pods had a device of their own for a while", coming.end())
	stopWatch()
	w.ledgersAgree(ctx, t)
	w.oneBindsAtATime(t, began, len(losses))
	lost = append(lost, time.Now())
	for i, l := range losses {
		t.Logf("the leader was %s: no pod was placed for %.1f s", l.how, w.longestPause(t, lost[i], lost[i+1]).Seconds())
	}
}

// leader waits until somebody else than not holds the schedulers' lease, and returns its pod and
// its identity. The pod that leads may be the one that led: its container was started again.
func (w *world) leader(ctx context.Context, t *testing.T, not string) (*corev1.Pod, string) {
	t.Helper()
	for {
		lease, err := w.cluster.Client().CoordinationV1().Leases(sandbox.Namespace).Get(ctx, "deviceshare-scheduler", metav1.GetOptions{})
		if err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != not && *lease.Spec.HolderIdentity != "" {
			p, err := w.cluster.LeadingScheduler(ctx)
			if err == nil && p.DeletionTimestamp == nil {
				return p, *lease.Spec.HolderIdentity
			}
		}
		if sleep(ctx, 100*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("no scheduler leads but %q: %v", not, err)
		}
	}
}

// upgrade gives the release other values than those that it was installed with, as far as named.
func (w *world) upgrade(ctx context.Context, t *testing.T, sets ...string) {
	t.Helper()
	w.upgradeWaiting(ctx, t, "--wait", sets...)
}

// upgradeWaiting is upgrade with an option of Helm that says what it waits for.
func (w *world) upgradeWaiting(ctx context.Context, t *testing.T, wait string, sets ...string) {
	t.Helper()
	command := []string{wait}
	for _, set := range sets {
		command = append(command, "--set", set)
	}
	if out, err := w.cluster.Upgrade(ctx, command...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// loss is a way to lose the scheduler that leads.
type loss struct {
	how string
	// lose takes the leader away; back, if there is one, brings it back when another one leads.
	lose, back func(*corev1.Pod) error
}

// lossesOfALeader has the one that shows most last: who is frozen wakes as a leader, and cannot
// lead again before another one did, as one whose container is killed and started again can.
func (w *world) lossesOfALeader(ctx context.Context) []loss {
	send := func(s syscall.Signal) func(*corev1.Pod) error {
		return func(p *corev1.Pod) error { return w.cluster.SignalPod(ctx, p, s) }
	}
	remove := func(p *corev1.Pod) error {
		return w.cluster.Client().CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{})
	}
	return []loss{
		{"killed", send(syscall.SIGKILL), nil},
		{"deleted", remove, nil},
		{"frozen", send(syscall.SIGSTOP), send(syscall.SIGCONT)},
	}
}

// takesADevice lets a pod come and go that wants more than half of a device's memory and allocates
// it: of two that were given the same device one would fail.
func takesADevice(ctx context.Context, t *testing.T, u *user.User, name string) bool {
	const mib = memoryMiB * 3 / 4
	p := pod(name).App("main", workload.Ask{Number: 1, Memory: mib}, "info", "env", "alloc", workload.MiB(mib-100), "expect", "ok").Build()
	if err := u.Create(ctx, p); err != nil {
		t.Error(err)
		return false
	}
	if !succeeds(ctx, t, u, name) {
		return false
	}
	done, err := u.Get(ctx, name)
	if err == nil {
		_, err = compare(ctx, u, done)
	}
	if err == nil {
		err = u.Delete(ctx, name)
	}
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// watchLedger looks again and again, until the returned function is called, whether what the API
// server says of all pods gives any share twice.
func (w *world) watchLedger(ctx context.Context, t *testing.T) (stop func()) {
	inv := w.inventory(ctx, t)
	looking, cancel := context.WithCancel(ctx)
	var looks sync.WaitGroup
	n, wrong := 0, map[string]int{}
	looks.Go(func() {
		for ; looking.Err() == nil; n++ {
			if _, err := w.rebuilt(looking, &inv); err != nil && looking.Err() == nil {
				wrong[err.Error()]++
			}
			sleep(looking, 100*time.Millisecond)
		}
	})
	return func() {
		cancel()
		looks.Wait()
		for what, times := range wrong {
			t.Errorf("%d of %d times: %s", times, n, what)
		}
		t.Logf("the ledger was rebuilt %d times", n)
	}
}

// restarted waits until the containers of a pod have been started again.
func (w *world) restarted(ctx context.Context, t *testing.T, before *corev1.Pod) {
	t.Helper()
	for {
		p, err := w.cluster.Client().CoreV1().Pods(before.Namespace).Get(ctx, before.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		was, is := before.Status.ContainerStatuses[0], p.Status.ContainerStatuses[0]
		if is.RestartCount > was.RestartCount && is.Ready {
			return
		}
		if sleep(ctx, 100*time.Millisecond); ctx.Err() != nil {
			t.Fatalf("scheduler %s was not started again: %+v", p.Name, is)
		}
	}
}

// bindings are the pods that schedulers bound since a moment, in their order.
func (w *world) bindings(t *testing.T, since time.Time) []sandbox.AuditEvent {
	t.Helper()
	events, err := w.cluster.AuditLog()
	if err != nil {
		t.Fatal(err)
	}
	var out []sandbox.AuditEvent
	for _, e := range events {
		if e.ObjectRef.Subresource == "binding" && e.User.Username == sandbox.User(sandbox.Scheduler) &&
			e.ResponseStatus.Code < 300 && e.Time.After(since) {
			out = append(out, e)
		}
	}
	return out
}

// oneBindsAtATime reads in the audit log which scheduler bound what since a moment. That changes as
// often as the schedulers did: more changes are bindings of two at once.
func (w *world) oneBindsAtATime(t *testing.T, since time.Time, changes int) {
	t.Helper()
	var order []string
	count := map[string]int{}
	for _, e := range w.bindings(t, since) {
		pod := e.Pod()
		if len(order) == 0 || order[len(order)-1] != pod {
			order = append(order, pod)
		}
		count[pod]++
	}
	if got := len(order) - 1; got < 1 || got > changes {
		t.Errorf("pods were bound by %q in this order, want another scheduler at most %d times, and at least once", order, changes)
	}
	for pod, n := range count {
		t.Logf("%s bound %d pods", pod, n)
	}
}

// longestPause is the longest time between two bindings of a period.
func (w *world) longestPause(t *testing.T, begin, end time.Time) time.Duration {
	t.Helper()
	longest, last := time.Duration(0), begin
	for _, e := range w.bindings(t, begin) {
		if e.Time.After(end) {
			break
		}
		longest, last = max(longest, e.Time.Sub(last)), e.Time
	}
	return longest
}
