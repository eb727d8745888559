// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"deviceshare/sharing"
)

func podOf(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: node},
	}
}

// goneTo is where pods that are gone are told.
type goneTo chan sharing.Owner

func (g goneTo) PodGone(o sharing.Owner) { g <- o }

func watchPods(t *testing.T, api *fake.Clientset) (*Pods, chan sharing.Owner) {
	t.Helper()
	gone := make(chan sharing.Owner, 10)
	s, err := NewPods(api, "here", goneTo(gone))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	go s.Run(ctx)
	t.Cleanup(cancel)
	if !s.WaitForSync(ctx) {
		t.Fatal("not synced")
	}
	return s, gone
}

func awaitPod(t *testing.T, s *Pods, owner sharing.Owner) types.NamespacedName {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	name, ok := s.Await(ctx, owner)
	if !ok {
		t.Fatalf("%s never came", owner)
	}
	return name
}

func TestOnlyLivePodsOfThisNodeAreKnown(t *testing.T) {
	ended := podOf("ended", "here")
	ended.Status.Phase = corev1.PodFailed
	api := fake.NewClientset(podOf("a", "here"), podOf("b", "elsewhere"), ended)
	s, _ := watchPods(t, api)
	if name := awaitPod(t, s, "uid-a"); name.String() != "ns/a" {
		t.Errorf("the name is %s", name)
	}
	if live := s.Live(); len(live) != 1 {
		t.Errorf("live are %v", live)
	}
}

func TestAwaitSeesAPodThatComesLater(t *testing.T) {
	api := fake.NewClientset()
	s, _ := watchPods(t, api)
	came := make(chan types.NamespacedName)
	go func() { came <- awaitPod(t, s, "uid-late") }()
	if _, err := api.CoreV1().Pods("ns").Create(context.Background(), podOf("late", "here"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if name := <-came; name.Name != "late" {
		t.Errorf("the name is %s", name)
	}
}

func TestAwaitGivesUpWithItsContext(t *testing.T) {
	s, _ := watchPods(t, fake.NewClientset())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, ok := s.Await(ctx, "nobody"); ok {
		t.Error("a pod came out of nothing")
	}
}

func TestAPodIsGoneOnceWhetherItEndsOrIsDeleted(t *testing.T) {
	api := fake.NewClientset(podOf("a", "here"), podOf("b", "here"))
	s, gone := watchPods(t, api)
	awaitPod(t, s, "uid-a")
	awaitPod(t, s, "uid-b")
	ended := podOf("a", "here")
	ended.Status.Phase = corev1.PodSucceeded
	if _, err := api.CoreV1().Pods("ns").UpdateStatus(context.Background(), ended, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if owner := <-gone; owner != "uid-a" {
		t.Errorf("%s is gone, want uid-a", owner)
	}
	for _, name := range []string{"a", "b"} {
		if err := api.CoreV1().Pods("ns").Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if owner := <-gone; owner != "uid-b" {
		t.Errorf("%s is gone, want uid-b only: uid-a had ended before", owner)
	}
	if _, ok := s.Pod("uid-b"); ok {
		t.Error("a pod that is gone is still live")
	}
}

func TestFetchGoesPastTheWatchAndKeepsTheReason(t *testing.T) {
	api := fake.NewClientset(podOf("a", "elsewhere"))
	s, _ := watchPods(t, api)
	pod, err := s.Fetch(context.Background(), types.NamespacedName{Namespace: "ns", Name: "a"})
	if err != nil || pod.Name != "a" {
		t.Errorf("%v, %v", pod, err)
	}
	_, err = s.Fetch(context.Background(), types.NamespacedName{Namespace: "ns", Name: "b"})
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		t.Errorf("the error is %v", err)
	}
}

// gap makes the first watch of pods see nothing; breaking it makes the informer
// list anew.
func gap(api *fake.Clientset) (end func()) {
	blind, first := watch.NewFake(), true
	api.PrependWatchReactor("pods", func(k8stesting.Action) (bool, watch.Interface, error) {
		was := first
		first = false
		return was, blind, nil
	})
	return func() {
		blind.Error(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
	}
}

func TestAPodCreatedAgainUnderItsNameWhileNobodyWatchedIsAnotherPod(t *testing.T) {
	api := fake.NewClientset(podOf("a", "here"))
	end := gap(api)
	s, gone := watchPods(t, api)
	again := podOf("a", "here")
	again.UID = "uid-again"
	if err := api.CoreV1().Pods("ns").Delete(context.Background(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := api.CoreV1().Pods("ns").Create(context.Background(), again, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	end()
	awaitPod(t, s, "uid-again")
	select {
	case owner := <-gone:
		if owner != "uid-a" {
			t.Errorf("%s is gone, want uid-a", owner)
		}
	default:
		t.Error("nobody is told that the first pod is gone")
	}
	if live := s.Live(); len(live) != 1 {
		t.Errorf("live are %v", live)
	}
}

func TestTheStoreHasSyncedOnlyWhenItHasTakenInWhatWasListed(t *testing.T) {
	s, err := NewPods(fake.NewClientset(podOf("a", "here")), "here", goneTo(nil))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.mu.Lock() // the handler cannot get on
	go s.Run(ctx)
	soon, stop := context.WithTimeout(ctx, 500*time.Millisecond)
	defer stop()
	early := s.WaitForSync(soon)
	s.mu.Unlock()
	if early {
		t.Error("it has synced before the pod was taken in")
	}
	if !s.WaitForSync(ctx) || len(s.Live()) != 1 {
		t.Errorf("live are %v", s.Live())
	}
}
