// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"deviceshare/sharing"
)

// Pods is the pods of one node. It is safe for concurrent use. A pod is live
// until it ended or is gone; pods that ended keep no devices.
type Pods struct {
	client   kubernetes.Interface
	node     string
	informer cache.SharedIndexInformer
	handled  cache.InformerSynced // every pod that was listed at the start is in live
	observer PodObserver

	mu      sync.Mutex
	live    map[sharing.Owner]*corev1.Pod
	changed chan struct{} // closed and replaced when a pod has come, changed or gone
}

// PodObserver is told about every live pod that ended or is gone. It must not block.
type PodObserver interface {
	PodGone(owner sharing.Owner)
}

// NewPods returns the pods of a node; none are known until Run.
func NewPods(client kubernetes.Interface, node string, observer PodObserver) (*Pods, error) {
	informer := coreinformers.NewFilteredPodInformer(client, metav1.NamespaceAll, 0, cache.Indexers{}, fieldSelector("spec.nodeName", node))
	s := &Pods{
		client: client, node: node, observer: observer, informer: informer,
		live: map[sharing.Owner]*corev1.Pod{}, changed: make(chan struct{}),
	}
	registration, err := s.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.addPod(o) },
		UpdateFunc: s.updatePod,
		DeleteFunc: func(o any) { s.removePod(o) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch the pods of node %s: %w", node, err)
	}
	s.handled = registration.HasSynced
	return s, nil
}

// fieldSelector restricts a watch to the objects with this value in a field, so that a node
// does not keep the whole cluster in memory.
func fieldSelector(field, value string) func(*metav1.ListOptions) {
	return func(o *metav1.ListOptions) { o.FieldSelector = fields.OneTermEqualSelector(field, value).String() }
}

// Run watches until ctx ends.
func (s *Pods) Run(ctx context.Context) { s.informer.RunWithContext(ctx) }

// WaitForSync returns true once every pod of the node is known, false if ctx ended
// before. The informer alone is done earlier: it has listed the pods then, and has
// yet to hand them over.
func (s *Pods) WaitForSync(ctx context.Context) bool {
	return cache.WaitForCacheSync(ctx.Done(), s.handled)
}

// updatePod takes in a pod that changed. One that was deleted and created again under
// its name while nobody watched comes as a change too: the old one is gone then,
// and nothing else will say so.
func (s *Pods) updatePod(before, after any) {
	old, ok := before.(*corev1.Pod)
	fresh, also := after.(*corev1.Pod)
	if ok && also && old.UID != fresh.UID {
		s.removePod(old)
	}
	s.addPod(after)
}

func (s *Pods) addPod(object any) {
	pod, ok := object.(*corev1.Pod)
	if !ok || pod.Spec.NodeName != s.node {
		return
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		s.removePod(pod)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live[sharing.Owner(pod.UID)] = pod
	s.notifyWaiters()
}

// notifyWaiters wakes who waits for a change. The caller holds the lock.
func (s *Pods) notifyWaiters() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// Changed is closed when a pod has come, changed or gone.
func (s *Pods) Changed() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (s *Pods) removePod(object any) {
	if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = last.Obj
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	owner := sharing.Owner(pod.UID)
	s.mu.Lock()
	_, was := s.live[owner]
	delete(s.live, owner)
	if was {
		s.notifyWaiters()
	}
	s.mu.Unlock()
	if was {
		s.observer.PodGone(owner)
	}
}

// Pod returns a live pod. It must not be changed.
func (s *Pods) Pod(owner sharing.Owner) (*corev1.Pod, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pod, ok := s.live[owner]
	return pod, ok
}

// Live implements kubelet.Pods.
func (s *Pods) Live() map[sharing.Owner]types.NamespacedName {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make(map[sharing.Owner]types.NamespacedName, len(s.live))
	for owner, pod := range s.live {
		names[owner] = nameOf(pod)
	}
	return names
}

// Await implements kubelet.Pods.
func (s *Pods) Await(ctx context.Context, owner sharing.Owner) (types.NamespacedName, bool) {
	for {
		s.mu.Lock()
		pod, ok := s.live[owner]
		changed := s.changed
		s.mu.Unlock()
		if ok {
			return nameOf(pod), true
		}
		select {
		case <-ctx.Done():
			return types.NamespacedName{}, false
		case <-changed:
		}
	}
}

// Fetch asks the API server for one pod, past every cache.
func (s *Pods) Fetch(ctx context.Context, name types.NamespacedName) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	pod, err := s.client.CoreV1().Pods(name.Namespace).Get(ctx, name.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get pod %s: %w", name, err)
	}
	return pod, nil
}

func nameOf(pod *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}
}
