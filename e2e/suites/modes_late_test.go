// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// bindAs binds a pod to the real node as a scheduler would that takes the device to
// be in this mode. Nobody else may write a placement.
func (w *world) bindAs(ctx context.Context, t *testing.T, namespace, name string, id sharing.DeviceID, m sharing.Mode) {
	t.Helper()
	annotations, err := wire.PlacementAnnotations(sharing.Placement{
		Node: sandbox.NodeName,
		Containers: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{
			{Device: id, Mode: m, Memory: sharing.MiBs(5000)},
		}}},
	}, 1, time.Now().Unix())
	if err != nil {
		t.Fatal(err)
	}
	w.bindWith(ctx, t, namespace, name, annotations)
}

// bindWith binds a pod to the real node in the scheduler's name, with a placement.
func (w *world) bindWith(ctx context.Context, t *testing.T, namespace, name string, placement map[string]string) {
	t.Helper()
	err := w.as(ctx, t, sandbox.Scheduler).CoreV1().Pods(namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: placement},
		Target:     corev1.ObjectReference{Kind: "Node", Name: sandbox.NodeName},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// replicas makes a set of n replicas of the pod.
func (w *world) replicas(ctx context.Context, t *testing.T, namespace string, n int32, pod *corev1.Pod) {
	t.Helper()
	labels := map[string]string{"set": "late"}
	pod.Labels, pod.Spec.RestartPolicy = labels, corev1.RestartPolicyAlways
	_, err := w.cluster.Client().AppsV1().ReplicaSets(namespace).Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "late"},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: pod.Annotations}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// replica waits for the pod of the set that is not bound yet and is not the one
// named.
func (w *world) replica(ctx context.Context, t *testing.T, u *user.User, not string) *corev1.Pod {
	t.Helper()
	for {
		pods, err := u.Pods(ctx)
		if err != nil && ctx.Err() != nil {
			t.Fatal(err)
		}
		for i := range pods {
			p := &pods[i]
			if p.Labels["set"] == "late" && p.Name != not && p.Spec.NodeName == "" && p.DeletionTimestamp == nil {
				return p
			}
		}
		if ctx.Err() != nil {
			t.Fatalf("no new pod beside %q: %v", not, ctx.Err())
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

// nodeSaid waits for an event of the real node.
func (w *world) nodeSaid(ctx context.Context, reason, part string) error {
	var last []string
	for {
		list, err := w.cluster.Client().CoreV1().Events("").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Node"})
		if err == nil {
			last = nil
			for _, e := range list.Items {
				if e.Reason == reason && strings.Contains(e.Message, part) {
					return nil
				}
				last = append(last, e.Reason+": "+e.Message)
			}
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the node never said %s with %q; it said %q", reason, part, last)
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

// versions is the configuration that the real node says it goes by.
func (w *world) versions(ctx context.Context, t *testing.T) wire.ConfigVersions {
	t.Helper()
	node, err := w.cluster.Client().CoreV1().Nodes().Get(ctx, sandbox.NodeName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	v, err := wire.DecodeConfig(node.Annotations[wire.NodeConfig])
	if err != nil {
		t.Fatal(err)
	}
	return v
}
