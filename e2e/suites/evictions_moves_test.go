// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing/wire"
	"deviceshare/view"
)

// After a minute the pod that may move goes to the device of the other, and a pod gets a whole
// device.
func (e *evictions) testMoves(t *testing.T) {
	ctx, u := e.user(t, "moves")
	first := e.shareTwoDevices(ctx, t, u, true)
	run(ctx, t, u, e.pod("waits", middle, oneDevice()))
	e.requireMoved(ctx, t, u, first)
}

// Nobody may move. kubectl deviceshare plan says who could, changes nothing for a user who may
// only look, and with the rights for it has the pod moved, and no other.
func (e *evictions) testPlan(t *testing.T) {
	ctx, u := e.user(t, "plan")
	first := e.shareTwoDevices(ctx, t, u, false)
	if err := u.Create(ctx, e.pod("waits", middle, oneDevice()).Build()); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitAnyEvent(ctx, []string{"waits"}, "NotEmpty"); err != nil {
		t.Fatal(err)
	}
	const viewer = "plan-viewer"
	e.letView(ctx, t, viewer)
	plan := []string{"plan", "waits", "-n", u.Namespace()}
	var found view.Plan
	out, err := e.cluster.Deviceshare(ctx, append(plan, "--as", viewer, "-o", "json")...)
	if err == nil {
		err = json.Unmarshal([]byte(out), &found)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(found.Steps) != 1 || found.Steps[0].Pod != u.Namespace()+"/"+first || found.Steps[0].Permitted || !found.Starts() {
		t.Fatalf("the plan is %s", out)
	}
	if out, err := e.cluster.Deviceshare(ctx, append(plan, "--as", viewer, "--apply")...); err == nil ||
		!strings.Contains(err.Error(), "nothing was changed: you need the right to patch pods in namespace "+u.Namespace()) {
		t.Errorf("without the right: %v\n%s", err, out)
	}
	if p, err := u.Get(ctx, first); err != nil || p.Annotations[wire.UserMayMove] != "" {
		t.Fatalf("pod %s: %v %v", first, p.Annotations, err)
	}
	if out, err := e.cluster.Deviceshare(ctx, append(plan, "--apply")...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	e.requireMoved(ctx, t, u, first)
	if _, err := u.WaitRunning(ctx, "waits"); err != nil {
		t.Fatal(err)
	}
}

// shareTwoDevices has whole pods on six of eight devices, and one share on each of the other two:
// that of pod "stays", and that of a set of one pod, whose name is returned. All have the same
// priority.
func (e *evictions) shareTwoDevices(ctx context.Context, t *testing.T, u *user.User, mayMove bool) string {
	t.Helper()
	share := workload.Ask{Number: 1, Memory: 4000}
	var pods []*workload.Pod
	for i := range 6 {
		pods = append(pods, e.pod(fmt.Sprint("whole-", i), middle, oneDevice(), i))
	}
	run(ctx, t, u, append(pods, e.pod("for-now", middle, oneDevice(), 7))...)
	moves := e.pod("moves", middle, share, 6, 7)
	if mayMove {
		moves = moves.Annotate(wire.UserMayMove, wire.MayMove)
	}
	e.replicate(ctx, t, u, moves.Build())
	first := e.runningOf(ctx, t, u, "moves", "")
	if err := u.Delete(ctx, "for-now"); err != nil {
		t.Fatal(err)
	}
	run(ctx, t, u, e.pod("stays", middle, share, 7))
	return first
}

// requireMoved waits until the pod of the set is made again on the device of the other.
func (e *evictions) requireMoved(ctx context.Context, t *testing.T, u *user.User, first string) {
	t.Helper()
	again := e.runningOf(ctx, t, u, "moves", first)
	e.requireEvicted(t, u, first)
	said := fmt.Sprintf("Moved: makes room on %[1]s for %[2]s/waits; it may move, and a place is kept for it on %[1]s", sandbox.NodeName, u.Namespace())
	askUntil(ctx, t, "event Moved of pod "+first, func() (bool, error) {
		texts, err := u.Events(ctx, first)
		return slices.Contains(texts, said), err
	})
	pod, err := u.Get(ctx, again)
	if err != nil {
		t.Fatal(err)
	}
	if placement := pod.Annotations[wire.PodPlacement]; !strings.Contains(placement, string(e.devices[7])) {
		t.Errorf("the pod moved to %s, want device %s", placement, e.devices[7])
	}
}

// runningOf waits until the pod of a set runs that is not the given one, and returns its name.
func (e *evictions) runningOf(ctx context.Context, t *testing.T, u *user.User, set, not string) (name string) {
	t.Helper()
	askUntil(ctx, t, "the pod of set "+set+" to run", func() (bool, error) {
		pods, err := u.Pods(ctx)
		i := slices.IndexFunc(pods, func(p corev1.Pod) bool {
			return p.Labels["app"] == set && p.Name != not && p.Status.Phase == corev1.PodRunning
		})
		if i < 0 {
			return false, err
		}
		name = pods[i].Name
		return true, err
	})
	return name
}
