// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"deviceshare/sharing/wire"
)

// kubelets stand for all nodes: they report bound pods running, with one small write for each,
// note when pods were bound, and end at once those that are to leave. Package fakenode does more
// for each pod and keeps leases: that would be much of what is measured.
type kubelets struct {
	client kubernetes.Interface
	bound  chan podName
	// ending are pods that were told to leave, left counts those that have.
	ending chan podName
	left   atomic.Int64

	mu   sync.Mutex
	pods map[podName]seenPod
}

type podName struct{ namespace, name string }

// seenPod is what a turn has to know of a pod.
type seenPod struct {
	// boundAt is when its node was first seen; zero while it has none.
	boundAt time.Time
	// placement is the text of the devices that it was given.
	placement string
	// leaves says that it was told to.
	leaves bool
}

// runKubelets starts them. They end with ctx.
func runKubelets(ctx context.Context, client kubernetes.Interface) (*kubelets, error) {
	k := &kubelets{client: client, bound: make(chan podName, 100_000), ending: make(chan podName, 100_000), pods: map[podName]seenPod{}}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(namespace), informers.WithTransform(strip))
	informer := factory.Core().V1().Pods().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: k.see, UpdateFunc: func(_, now any) { k.see(now) }, DeleteFunc: k.forget,
	})
	if err != nil {
		return nil, fmt.Errorf("watch pods: %w", err)
	}
	for range writers / 2 {
		go k.work(ctx)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return nil, fmt.Errorf("watch pods: %w", context.Cause(ctx))
	}
	return k, nil
}

// strip keeps of a pod what is read here.
func strip(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
			DeletionTimestamp: p.DeletionTimestamp, Annotations: map[string]string{wire.PodPlacement: p.Annotations[wire.PodPlacement]}},
		Spec: corev1.PodSpec{NodeName: p.Spec.NodeName}, Status: corev1.PodStatus{Phase: p.Status.Phase},
	}, nil
}

func (k *kubelets) see(obj any) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return
	}
	name := podName{p.Namespace, p.Name}
	k.mu.Lock()
	known := k.pods[name]
	fresh := known.boundAt.IsZero() && p.Spec.NodeName != ""
	if fresh {
		known = seenPod{boundAt: time.Now(), placement: p.Annotations[wire.PodPlacement]}
	}
	ends := p.DeletionTimestamp != nil && p.Spec.NodeName != "" && !known.leaves
	known.leaves = known.leaves || ends
	k.pods[name] = known
	k.mu.Unlock()
	switch {
	case ends:
		k.ending <- name
	case fresh:
		k.bound <- name
	}
}

func (k *kubelets) forget(obj any) {
	if last, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = last.Obj
	}
	if p, ok := obj.(*corev1.Pod); ok {
		k.mu.Lock()
		if name := (podName{p.Namespace, p.Name}); k.pods[name].leaves {
			k.left.Add(1)
		}
		delete(k.pods, podName{p.Namespace, p.Name})
		k.mu.Unlock()
	}
}

// running is what a pod's status becomes. Condition Ready is what controllers look at.
const running = `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`

// work ends pods, and reports pods running. One that was deleted meanwhile needs nothing.
func (k *kubelets) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case p := <-k.ending:
			now := int64(0)
			err := k.client.CoreV1().Pods(p.namespace).Delete(ctx, p.name, metav1.DeleteOptions{GracePeriodSeconds: &now})
			if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				k.ending <- p
			}
		case p := <-k.bound:
			_, err := k.client.CoreV1().Pods(p.namespace).Patch(ctx, p.name, types.StrategicMergePatchType, []byte(running), metav1.PatchOptions{}, "status")
			if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				k.bound <- p
			}
		}
	}
}

// snapshot returns all pods there are.
func (k *kubelets) snapshot() map[podName]seenPod {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make(map[podName]seenPod, len(k.pods))
	for name, p := range k.pods {
		out[name] = p
	}
	return out
}

// counts returns how many pods there are, and how many of them are bound.
func (k *kubelets) counts() (all, bound int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if !p.boundAt.IsZero() {
			bound++
		}
	}
	return len(k.pods), bound
}
