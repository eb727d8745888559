// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing/wire"
)

// The nodes of the group have so many devices of so many MiB. Pods of other suites keep off.
const (
	groupCards, groupMiB = 4, 80 << 10

	onlyAutoscale = "deviceshare.test/autoscale"
	groupType     = "four-a100"
)

// neededNodes is how many nodes the pods of the suite need: ten have most of a device each, and a
// gang has three nodes for itself.
const neededNodes = (10+groupCards-1)/groupCards + 3

// quietScans is for how many scans in a row the autoscaler orders nothing before it is believed to
// have come to rest: longer than it takes until nodes are asked for.
const quietScans = 100

// testAutoscale has pods wait for nodes that an autoscaler adds by sums. Without the feature it
// comes to rest while pods wait. With it, all pods run, also from no node, on as many nodes as they
// need, and nothing is left of what asked for them.
func testAutoscale(t *testing.T, w *world) {
	ctx, u := w.user(t, "autoscale", 12*time.Minute)
	a := &autoscaler{client: w.cluster.Client(), label: onlyAutoscale, like: groupNode(t)}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
		defer cancel()
		w.upgrade(ctx, t)
		a.removeNodes(ctx, t)
	})
	if _, err := w.dynamic(t).Resource(workload.PodGroups()).Namespace(u.Namespace()).Create(ctx, workload.Group("gang", 3), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.makePodsThatNeedNodes(ctx, t, u)
	a.scanUntil(ctx, t, "the autoscaler has come to rest", func() bool { return a.quiet >= quietScans })
	waiting := w.countWaiting(ctx, t, u)
	if waiting == 0 {
		t.Fatalf("without being asked, the autoscaler has added %d nodes, and all pods run: there is nothing to show", a.made)
	}
	t.Logf("without being asked, the autoscaler adds %d nodes, and %d pods wait for ever", a.made, waiting)

	w.upgrade(ctx, t, "autoscaling.enabled=true")
	a.scanUntil(ctx, t, "all pods run", func() bool { return w.countWaiting(ctx, t, u) == 0 })
	w.wantsNoMoreNodes(ctx, t, a)

	if err := u.DeleteAll(ctx); err != nil {
		t.Fatal(err)
	}
	a.removeNodes(ctx, t)
	w.makePodsThatNeedNodes(ctx, t, u)
	a.scanUntil(ctx, t, "all pods run that began with no node", func() bool { return w.countWaiting(ctx, t, u) == 0 })
	w.wantsNoMoreNodes(ctx, t, a)
}

// scanUntil scans until something is true.
func (a *autoscaler) scanUntil(ctx context.Context, t *testing.T, what string, isSo func() bool) {
	t.Helper()
	for !isSo() {
		if err := a.scan(ctx); err != nil && ctx.Err() == nil {
			t.Logf("scan: %v", err)
		}
		if sleep(ctx, time.Second); ctx.Err() != nil {
			t.Fatalf("waited for ever until %s: %d nodes ordered, %d made, quiet for %d scans", what, a.ordered, a.made, a.quiet)
		}
	}
}

// groupNode is the i-th node of the group.
func groupNode(t *testing.T) func(i int) *corev1.Node {
	t.Helper()
	return func(i int) *corev1.Node {
		inv := simulatedCards("grown-"+strconv.Itoa(i), fmt.Sprintf("GPU-6a0%02d000", i), "NVIDIA A100-SXM4-80GB", groupCards, groupMiB)
		return nodeWithCards(t, inv, onlyAutoscale, map[string]string{corev1.LabelInstanceTypeStable: groupType}, corev1.ResourceList{
			corev1.ResourcePods: resource.MustParse("110"), corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi"),
		})
	}
}

// makePodsThatNeedNodes makes six pods of 48 GiB, four of 50, and a gang of three that has all
// devices of a node each.
func (w *world) makePodsThatNeedNodes(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	var pods []*workload.Pod
	for i := range 10 {
		ask := workload.Ask{Number: 1, Memory: 48 << 10}
		if i >= 6 {
			ask.Memory = 50 << 10
		}
		pods = append(pods, pod(fmt.Sprint("most-of-one-", i)).App("main", ask, "forever"))
	}
	for i := range 3 {
		pods = append(pods, pod(fmt.Sprint("member-", i)).App("main", workload.Ask{Number: groupCards}, "forever").Annotate(workload.GroupKey, "gang"))
	}
	for _, p := range pods {
		if err := u.Create(ctx, p.Edit(func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{onlyAutoscale: "true"}
			p.Spec.Tolerations = []corev1.Toleration{{Key: onlyAutoscale, Operator: corev1.TolerationOpExists}}
		}).Build()); err != nil {
			t.Fatal(err)
		}
	}
}

// countWaiting is how many pods of the suite have no node.
func (w *world) countWaiting(ctx context.Context, t *testing.T, u *user.User) int {
	t.Helper()
	pods, err := u.Pods(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return len(slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Spec.NodeName != "" }))
}

// wantsNoMoreNodes checks that there are as many nodes as are needed, one more at most: the last
// utility pod may be seen when the node has just come. No utility pod is left.
func (w *world) wantsNoMoreNodes(ctx context.Context, t *testing.T, a *autoscaler) {
	t.Helper()
	askUntil(ctx, t, "the last utility pod to be deleted", func() (bool, error) {
		left, err := w.cluster.Client().CoreV1().Pods(sandbox.Namespace).List(ctx, metav1.ListOptions{LabelSelector: wire.UtilityPod})
		return err == nil && len(left.Items) == 0, err
	})
	if a.ordered < neededNodes || a.ordered > neededNodes+1 {
		t.Errorf("the autoscaler has ordered %d nodes, %d are needed", a.ordered, neededNodes)
	}
	t.Logf("all pods run, on %d nodes of %d that were ordered; %d are needed", a.made, a.ordered, neededNodes)
}
