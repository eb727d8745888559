// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// reasonRefused is the reason of the event that tells a user to delete a pod, which cannot start
// as it was placed and is not evicted (docs/events.md).
const reasonRefused = "DevicePlacementRefused"

// reader is a user who reads the events of pods and types what they say. It is safe for concurrent
// use.
type reader struct {
	client  kubernetes.Interface
	history *History
	found   func(Violation)

	mu   sync.Mutex
	told map[types.UID]bool
}

func newReader(t *Traffic) *reader {
	return &reader{client: t.Client, history: t.History, found: t.Found, told: map[types.UID]bool{}}
}

// deleted reports whether a pod was deleted because an event said so.
func (r *reader) deleted(uid types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.told[uid]
}

// read does what events say until ctx ends. An API server that is away is asked again.
func (r *reader) read(ctx context.Context) {
	for ; ctx.Err() == nil; pause(ctx, time.Second) {
		events, err := r.client.CoreV1().Events(Namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=" + reasonRefused})
		if err != nil {
			continue
		}
		for i := range events.Items {
			r.obey(ctx, &events.Items[i])
		}
	}
}

// obey deletes the pod of an event, once, if that is what the event says.
func (r *reader) obey(ctx context.Context, e *corev1.Event) {
	name, uid := e.InvolvedObject.Name, e.InvolvedObject.UID
	if r.deleted(uid) {
		return
	}
	command := fmt.Sprintf("kubectl delete pod -n %s %s", Namespace, name)
	if !strings.Contains(e.Message, command) {
		r.found(Violation{"pods", fmt.Sprintf("the event %s of pod %s does not say what to type: %s", reasonRefused, name, e.Message)})
	}
	r.mu.Lock()
	r.told[uid] = true // before it is gone, so that nobody wonders
	r.mu.Unlock()
	err := r.client.CoreV1().Pods(Namespace).Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	switch {
	case err == nil:
		r.history.Count("pods deleted by their users because an event said so")
	case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
		r.mu.Lock()
		delete(r.told, uid) // another try
		r.mu.Unlock()
	}
}
