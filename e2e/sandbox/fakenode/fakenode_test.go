// SPDX-License-Identifier: Apache-2.0

package fakenode

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
)

func node(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}}}
}

func pod(name, nodeName string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: "u"},
		Spec:   corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "a"}, {Name: "b"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending}}
}

func newKeeper(t *testing.T, client kubernetes.Interface, names ...string) *Keeper {
	t.Helper()
	var nodes []*corev1.Node
	for _, n := range names {
		nodes = append(nodes, node(n))
	}
	k, err := Create(t.Context(), client, nodes)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestCreatedNodeIsReadyAndOffersItsCapacity(t *testing.T) {
	client := fake.NewClientset()
	k := newKeeper(t, client, "n0")
	n, err := client.CoreV1().Nodes().Get(t.Context(), "n0", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if cpu := n.Status.Allocatable[corev1.ResourceCPU]; cpu.Value() != 8 {
		t.Errorf("allocatable CPU is %s, want the capacity", cpu.String())
	}
	if n.Status.Conditions[0].Type != corev1.NodeReady || n.Status.Conditions[0].Status != corev1.ConditionTrue {
		t.Errorf("conditions: %v", n.Status.Conditions)
	}
	if _, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), "n0", metav1.GetOptions{}); err != nil {
		t.Errorf("the node has no lease: %v", err)
	}
	if err := k.WaitReady(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestGivenAllocatableIsKept(t *testing.T) {
	client := fake.NewClientset()
	n := node("n0")
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}
	if _, err := Create(t.Context(), client, []*corev1.Node{n}); err != nil {
		t.Fatal(err)
	}
	got, _ := client.CoreV1().Nodes().Get(t.Context(), "n0", metav1.GetOptions{})
	if cpu := got.Status.Allocatable[corev1.ResourceCPU]; cpu.Value() != 3 {
		t.Errorf("allocatable CPU is %s, want 3", cpu.String())
	}
}

func TestTakenNodeNameIsRefused(t *testing.T) {
	client := fake.NewClientset(node("real"))
	if _, err := Create(t.Context(), client, []*corev1.Node{node("real")}); !apierrors.IsAlreadyExists(err) {
		t.Errorf("a name of an existing node: %v", err)
	}
	_, err := Create(t.Context(), client, []*corev1.Node{node("a"), node("a")})
	if err == nil || !strings.Contains(err.Error(), "two nodes have this name") {
		t.Errorf("a name twice: %v", err)
	}
}

func TestPodsOfSimulatedNodesRunAndThoseOfOthersAreLeftAlone(t *testing.T) {
	client := fake.NewClientset(pod("ours", "n0"), pod("theirs", "real"), pod("unbound", ""))
	k := newKeeper(t, client, "n0")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	defer func() { cancel(); <-done }()

	get := func(name string) *corev1.Pod {
		p, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	deadline := time.Now().Add(10 * time.Minute)
	for get("ours").Status.Phase != corev1.PodRunning {
		if time.Now().After(deadline) {
			t.Fatal("the pod never ran")
		}
		time.Sleep(5 * time.Millisecond)
	}
	if st := get("ours").Status.ContainerStatuses; len(st) != 2 || !st[0].Ready || st[1].State.Running == nil {
		t.Errorf("container statuses: %+v", st)
	}
	for _, name := range []string{"theirs", "unbound"} {
		if phase := get(name).Status.Phase; phase != corev1.PodPending {
			t.Errorf("pod %s is %s", name, phase)
		}
	}
}

func TestDeletedPodIsLetGo(t *testing.T) {
	p := pod("p", "n0")
	client := fake.NewClientset(p)
	k := newKeeper(t, client, "n0")
	now := metav1.Now()
	p.DeletionTimestamp = &now
	k.play(t.Context(), p)
	if _, err := client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod is still there: %v", err)
	}
}

func TestRunningStatusKeepsWhatOthersReported(t *testing.T) {
	p := pod("p", "n0")
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
	st := runningStatus(p, metav1.Now())
	got := map[corev1.PodConditionType]corev1.ConditionStatus{}
	for _, c := range st.Conditions {
		got[c.Type] = c.Status
	}
	if got[corev1.PodScheduled] != corev1.ConditionTrue || got[corev1.PodReady] != corev1.ConditionTrue || len(st.Conditions) != 4 {
		t.Errorf("conditions: %v", st.Conditions)
	}
	if p.Status.Conditions[1].Status != corev1.ConditionFalse {
		t.Error("the argument was changed")
	}
}
