// SPDX-License-Identifier: Apache-2.0

// Package fakenode simulates nodes on a real API server. It creates Node objects, keeps them
// ready, and acts as the kubelet for the pods bound to them. Pods are reported running at
// once, and are gone at once when they are deleted. Nothing is executed. That is all a
// scheduler sees of a node.
package fakenode

import (
	"context"
	"errors"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// leaseEvery is how often a node says that it is alive; the node lifecycle controller gives up
// after 40 s.
const leaseEvery = 10 * time.Second

// leaseSeconds is the duration that a kubelet writes into its lease.
const leaseSeconds = 40

// Keeper keeps a set of simulated nodes alive.
type Keeper struct {
	client kubernetes.Interface
	names  map[string]bool
}

// Create creates nodes, ready from the start. Their allocatable amounts are their capacity unless
// set. A node that exists already is an error: it may be a real one.
func Create(ctx context.Context, client kubernetes.Interface, nodes []*corev1.Node) (*Keeper, error) {
	k := &Keeper{client: client, names: map[string]bool{}}
	for _, n := range nodes {
		if k.names[n.Name] {
			return nil, fmt.Errorf("simulate node %s: two nodes have this name", n.Name)
		}
		k.names[n.Name] = true
		if err := k.create(ctx, n.DeepCopy()); err != nil {
			return nil, fmt.Errorf("simulate node %s: %w", n.Name, err)
		}
	}
	return k, nil
}

func (k *Keeper) create(ctx context.Context, n *corev1.Node) error {
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	n.Labels[corev1.LabelHostname] = n.Name
	if n.Status.Allocatable == nil {
		n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	}
	// As with a kubelet, the first status comes with the object itself.
	n.Status.Conditions = readyConditions(time.Now())
	if _, err := k.client.CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{}); err != nil {
		return err
	}
	return k.renew(ctx, n.Name)
}

// readyConditions are the conditions of a healthy node.
func readyConditions(now time.Time) []corev1.NodeCondition {
	at := metav1.NewTime(now)
	cond := func(kind corev1.NodeConditionType, status corev1.ConditionStatus) corev1.NodeCondition {
		return corev1.NodeCondition{Type: kind, Status: status, Reason: "Simulated", Message: "simulated node",
			LastHeartbeatTime: at, LastTransitionTime: at}
	}
	return []corev1.NodeCondition{
		cond(corev1.NodeReady, corev1.ConditionTrue), cond(corev1.NodeMemoryPressure, corev1.ConditionFalse),
		cond(corev1.NodeDiskPressure, corev1.ConditionFalse), cond(corev1.NodePIDPressure, corev1.ConditionFalse),
	}
}

// renew writes the node's lease.
func (k *Keeper) renew(ctx context.Context, name string) error {
	leases := k.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	holder, seconds, now := name, int32(leaseSeconds), metav1.NowMicro()
	spec := coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now}
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lease.Spec = spec
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}

// Run plays the kubelet of every node until ctx ends. An apiserver that is away for a while is no
// error.
func (k *Keeper) Run(ctx context.Context) {
	factory := informers.NewSharedInformerFactory(k.client, 0)
	pods := factory.Core().V1().Pods().Informer()
	see := func(obj any) {
		if pod, ok := obj.(*corev1.Pod); ok && k.names[pod.Spec.NodeName] {
			k.play(ctx, pod)
		}
	}
	_, _ = pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, now any) { see(now) },
	})
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		for name := range k.names {
			_ = k.renew(ctx, name) // the next round tries again
		}
	}, leaseEvery)
}

// play does what a kubelet would: report a bound pod running, and let go of a deleted one.
func (k *Keeper) play(ctx context.Context, pod *corev1.Pod) {
	pods := k.client.CoreV1().Pods(pod.Namespace)
	if pod.DeletionTimestamp != nil {
		zero := int64(0)
		_ = pods.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero,
			Preconditions: &metav1.Preconditions{UID: &pod.UID}})
		return
	}
	if pod.Status.Phase != corev1.PodPending {
		return
	}
	running := pod.DeepCopy()
	running.Status = runningStatus(pod, metav1.Now())
	_, err := pods.UpdateStatus(ctx, running, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) {
		return // a newer version of the pod is on its way to this handler
	}
}

// runningStatus is the status of a pod whose containers all run.
func runningStatus(pod *corev1.Pod, now metav1.Time) corev1.PodStatus {
	st := *pod.Status.DeepCopy()
	st.Phase, st.StartTime = corev1.PodRunning, &now
	st.HostIP, st.PodIP = "192.0.2.1", "192.0.2.2"
	set := map[corev1.PodConditionType]bool{corev1.PodInitialized: true, corev1.ContainersReady: true, corev1.PodReady: true}
	var kept []corev1.PodCondition
	for _, c := range st.Conditions {
		if !set[c.Type] {
			kept = append(kept, c)
		}
	}
	for _, kind := range []corev1.PodConditionType{corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		kept = append(kept, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	st.Conditions = kept
	st.ContainerStatuses = nil
	started := true
	for _, c := range pod.Spec.Containers {
		st.ContainerStatuses = append(st.ContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, Image: c.Image, Ready: true, Started: &started,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return st
}

// readyTimeout bounds WaitReady.
const readyTimeout = time.Minute

// WaitReady waits until every node takes pods: the node lifecycle controller removes the taint that
// new nodes get.
func (k *Keeper) WaitReady(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, readyTimeout, true, func(ctx context.Context) (bool, error) {
		list, err := k.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			last = err
			return false, nil
		}
		last = k.tainted(list.Items)
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for simulated nodes: %w", errors.Join(err, last))
	}
	return nil
}

// tainted names the first of the simulated nodes that the lifecycle controller still keeps pods
// off.
func (k *Keeper) tainted(nodes []corev1.Node) error {
	for _, n := range nodes {
		for _, t := range n.Spec.Taints {
			if k.names[n.Name] && t.Key == corev1.TaintNodeNotReady {
				return fmt.Errorf("node %s has the taint %s", n.Name, t.Key)
			}
		}
	}
	return nil
}
