// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

func TestAUserDeletesThePodsThatEventsSayTo(t *testing.T) {
	refused := func(pod, text string) *corev1.Event {
		return &corev1.Event{Reason: reasonRefused, Message: text,
			InvolvedObject: corev1.ObjectReference{Name: pod, UID: "u"}}
	}
	told := refused("p", "it cannot start: kubectl delete pod -n chaos p")
	for name, c := range map[string]struct {
		event             *corev1.Event
		answers           []error // of the API server, to the deletion
		deletions         int
		deleted, violated bool
	}{
		"one that says so":                        {told, []error{nil}, 1, true, false},
		"again while the API server fails":        {told, []error{errors.New("etcd is away"), nil}, 2, true, false},
		"one that is gone already":                {told, []error{apierrors.NewNotFound(corev1.Resource("pods"), "p")}, 1, true, false},
		"not one that was made anew":              {told, []error{apierrors.NewConflict(corev1.Resource("pods"), "p", errors.New("uid"))}, 1, true, false},
		"and complains if it says not what to do": {refused("p", "it cannot start"), []error{nil}, 1, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			client, deletions := fake.NewClientset(), 0
			client.PrependReactor("delete", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
				uid := a.(k8stesting.DeleteActionImpl).DeleteOptions.Preconditions.UID
				if uid == nil || *uid != c.event.InvolvedObject.UID {
					t.Errorf("deletes whatever pod has the name: %v", uid)
				}
				deletions++
				return true, nil, c.answers[deletions-1]
			})
			violations := 0
			r := newReader(&Traffic{Client: client, History: NewHistory(time.Now), Found: func(Violation) { violations++ }})
			for range 3 {
				r.obey(context.Background(), c.event)
			}
			got := fmt.Sprint(deletions, r.deleted(c.event.InvolvedObject.UID), violations > 0)
			if want := fmt.Sprint(c.deletions, c.deleted, c.violated); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestAUserReadsTheEventsOfTheNamespace(t *testing.T) {
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "e"}, Reason: reasonRefused,
		Message: "kubectl delete pod -n chaos p", InvolvedObject: corev1.ObjectReference{Name: "p", UID: "u"}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "p", UID: "u"}}
	client := fake.NewClientset(event, pod)
	h := NewHistory(time.Now)
	r := newReader(&Traffic{Client: client, History: h, Found: func(v Violation) { t.Error(v) }})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { r.read(ctx); close(ended) }()
	for !r.deleted("u") || h.Of("pods deleted by their users because an event said so") == 0 {
		time.Sleep(time.Millisecond)
	}
	stop()
	<-ended
}
