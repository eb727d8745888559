// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing/wire"
)

// Of eight devices six are in use as wholes, and two by one share each. The pod of one share may
// move: after a minute it goes to the device of the other, and a pod gets a whole device. All have
// the same priority.
func (e *evictions) testMoves(t *testing.T) {
	ctx, u := e.user(t, "moves")
	share := workload.Ask{Number: 1, Memory: 4000}
	var pods []*workload.Pod
	for i := range 6 {
		pods = append(pods, e.pod(fmt.Sprint("whole-", i), middle, oneDevice(), i))
	}
	run(ctx, t, u, append(pods, e.pod("for-now", middle, oneDevice(), 7))...)
	e.makeMovable(ctx, t, u, e.pod("moves", middle, share, 6, 7))
	first := e.runningOf(ctx, t, u, "moves", "")
	if err := u.Delete(ctx, "for-now"); err != nil {
		t.Fatal(err)
	}
	run(ctx, t, u, e.pod("stays", middle, share, 7))
	run(ctx, t, u, e.pod("waits", middle, oneDevice()))

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

// makeMovable makes a ReplicaSet of one pod that may move.
func (e *evictions) makeMovable(ctx context.Context, t *testing.T, u *user.User, of *workload.Pod) {
	t.Helper()
	pod := of.Annotate(wire.UserMayMove, wire.MayMove).Build()
	labels, one := map[string]string{"of": pod.Name}, int32(1)
	pod.Labels = labels
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: u.Namespace()},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: pod.Annotations}, Spec: pod.Spec},
		},
	}
	set.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	if _, err := e.cluster.Client().AppsV1().ReplicaSets(u.Namespace()).Create(ctx, set, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// runningOf waits until the pod of a set runs that is not the given one, and returns its name.
func (e *evictions) runningOf(ctx context.Context, t *testing.T, u *user.User, set, not string) (name string) {
	t.Helper()
	askUntil(ctx, t, "the pod of set "+set+" to run", func() (bool, error) {
		pods, err := u.Pods(ctx)
		i := slices.IndexFunc(pods, func(p corev1.Pod) bool {
			return p.Labels["of"] == set && p.Name != not && p.Status.Phase == corev1.PodRunning
		})
		if i < 0 {
			return false, err
		}
		name = pods[i].Name
		return true, err
	})
	return name
}
