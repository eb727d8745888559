// SPDX-License-Identifier: Apache-2.0

package evictor

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	podutil "k8s.io/kubernetes/pkg/api/v1/pod"
)

// bench is an evictor over a fake API server.
type bench struct {
	t      *testing.T
	client *fake.Clientset
	e      *Evictor

	mu       sync.Mutex
	unwanted map[types.UID]bool
	leads    bool
	told     []string
	// underway is how many orders are being carried out, and most how many were at a time.
	underway, most int
	// failing is how many evictions still fail, and conflicts how many writes of pods that leave.
	failing, conflicts int
	// lasting pods have a grace period. The others are gone at once.
	lasting bool
	deletes []metav1.DeleteOptions
	// written are the reasons that were written.
	written []string
}

func newBench(t *testing.T, pods ...*corev1.Pod) *bench {
	t.Helper()
	b := &bench{t: t, leads: true, unwanted: map[types.UID]bool{}}
	var objects []runtime.Object
	for _, p := range pods {
		objects = append(objects, p)
	}
	b.client = fake.NewClientset(objects...)
	b.client.PrependReactor("create", "pods", b.answerEviction)
	b.client.PrependReactor("patch", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		patch := action.(k8stesting.PatchAction)
		b.written = append(b.written, patch.GetSubresource()+" "+string(patch.GetPatch()))
		if b.conflicts > 0 {
			b.conflicts--
			return true, nil, apierrors.NewConflict(corev1.Resource("pods"), patch.GetName(), errors.New("the pod has changed"))
		}
		return false, nil, nil
	})
	b.e = New(b, b, b)
	t.Cleanup(b.e.Close)
	return b
}

// answerEviction is the API server's side of an eviction.
func (b *bench) answerEviction(action k8stesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "eviction" {
		b.t.Errorf("%s %s", action.GetVerb(), action.GetSubresource())
	}
	eviction := action.(k8stesting.CreateAction).GetObject().(*policyv1.Eviction)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failing > 0 {
		b.failing--
		return true, nil, apierrors.NewTooManyRequests("a budget needs the pod", 10)
	}
	b.deletes = append(b.deletes, *eviction.DeleteOptions)
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	if !b.lasting {
		return true, nil, b.client.Tracker().Delete(pods, "ns", eviction.Name)
	}
	object, err := b.client.Tracker().Get(pods, "ns", eviction.Name)
	if err != nil {
		return true, nil, err
	}
	pod, now := object.(*corev1.Pod).DeepCopy(), metav1.Now()
	pod.DeletionTimestamp = &now
	podutil.UpdatePodCondition(&pod.Status, &corev1.PodCondition{ // as registry/core/pod/storage/eviction.go of Kubernetes does
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting"})
	return true, nil, b.client.Tracker().Update(pods, pod, "ns")
}

func (b *bench) Begin() (time.Time, func(), error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.leads {
		return time.Time{}, nil, errors.New("another process may lead")
	}
	b.underway++
	b.most = max(b.most, b.underway)
	return time.Now().Add(time.Hour), func() { b.set(func() { b.underway-- }) }, nil
}

func (b *bench) IsWanted(pod types.UID) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.unwanted[pod]
}

func (b *bench) Tell(o *corev1.ObjectReference, reason, message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told = append(b.told, fmt.Sprintf("%s %s: %s", o.Name, reason, message))
}

func (b *bench) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func (b *bench) evict(p *corev1.Pod) {
	b.e.Evict(b.client, Eviction{Pod: types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, UID: p.UID, Why: "makes room", Event: "Preempted"})
}

// settle waits until every order has its answer.
func (b *bench) settle() {
	b.t.Helper()
	b.eventually("every order has an answer", func() bool { return b.e.Len() == 0 })
}

func (b *bench) eventually(what string, ok func() bool) {
	b.t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	b.t.Fatalf("waited for ever: %s", what)
}

// writes counts the calls that change something.
func (b *bench) writes() (n int) {
	for _, a := range b.client.Actions() {
		if v := a.GetVerb(); v == "update" || v == "delete" || v == "patch" || v == "create" {
			n++
		}
	}
	return n
}

func (b *bench) get(name string) *corev1.Pod {
	b.t.Helper()
	pod, err := b.client.CoreV1().Pods("ns").Get(b.t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return pod
}

func podNamed(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
}

func TestAPodIsToldWhyItLeavesAndDeletedByItsUID(t *testing.T) {
	b := newBench(t, podNamed("a"))
	b.evict(podNamed("a"))
	b.evict(podNamed("a"))
	b.settle()
	if len(b.written) != 1 || !strings.HasPrefix(b.written[0], "status ") || !strings.Contains(b.written[0], `"metadata":{"uid":"uid-a"}`) {
		t.Errorf("written %q, want one reason, for this pod only", b.written)
	}
	if len(b.deletes) != 1 || b.deletes[0].Preconditions == nil || *b.deletes[0].Preconditions.UID != "uid-a" || b.get("a") != nil {
		t.Errorf("deletions %+v, want one of this pod only", b.deletes)
	}
	if len(b.told) != 1 || b.told[0] != "a Preempted: makes room" {
		t.Errorf("told %q", b.told)
	}
}

// The API server writes a reason of its own when it evicts a pod.
func TestAPodSaysWhyItLeavesUntilItIsGone(t *testing.T) {
	for _, conflicts := range []int{0, 2} {
		b := newBench(t, podNamed("a"))
		b.lasting, b.conflicts = true, conflicts
		b.evict(podNamed("a"))
		b.settle()
		conditions := b.get("a").Status.Conditions
		if len(conditions) != 1 || conditions[0].Reason != corev1.PodReasonPreemptionByScheduler || conditions[0].Message != "makes room" {
			t.Errorf("%d conflicts: the pod leaves with the conditions %+v", conflicts, conditions)
		}
		if len(b.deletes) != 1 || len(b.told) != 1 {
			t.Errorf("%d conflicts: evicted %d times, told %q", conflicts, len(b.deletes), b.told)
		}
	}
}

func TestAnEvictionThatFailsIsTriedUntilItIsAnswered(t *testing.T) {
	b := newBench(t, podNamed("a"))
	b.failing = 2
	b.evict(podNamed("a"))
	b.settle()
	if len(b.deletes) != 1 || b.get("a") != nil {
		t.Errorf("the pod is still there, after %d answered deletions", len(b.deletes))
	}
}

// A pod with the condition is about to be ended, for whoever reads it.
func TestAPodThatABudgetKeepsIsNoTarget(t *testing.T) {
	b := newBench(t, podNamed("a"))
	b.failing = 1_000_000
	b.evict(podNamed("a"))
	b.eventually("it was tried twice", func() bool { return b.e.queue.NumRequeues(key{"uid-a", evict}) >= 2 })
	b.set(func() { b.unwanted["uid-a"] = true })
	b.settle()
	if conditions := b.get("a").Status.Conditions; len(conditions) > 0 || len(b.told) > 0 {
		t.Errorf("the pod stays with the conditions %+v, told %q", conditions, b.told)
	}
}

// Each eviction is as few calls as can be: many pods leave at a time.
func TestAnEvictionIsThreeCalls(t *testing.T) {
	b := newBench(t, podNamed("a"))
	b.lasting = true
	b.evict(podNamed("a"))
	b.settle()
	if n := len(b.client.Actions()); n != 3 {
		t.Errorf("%d calls, want one to look, one to evict and one to say why: %v", n, b.client.Actions())
	}
}

func TestNobodyIsDeletedWhoNeedNotLeave(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*bench, *corev1.Pod)
	}{
		"the pod that wanted the room is gone": {prepare: func(b *bench, p *corev1.Pod) { b.unwanted[p.UID] = true }},
		"it leaves already": {prepare: func(_ *bench, p *corev1.Pod) {
			now := metav1.Now()
			p.DeletionTimestamp, p.Finalizers = &now, []string{"x/y"}
		}},
		"it has ended":             {prepare: func(_ *bench, p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
		"another pod has its name": {prepare: func(_ *bench, p *corev1.Pod) { p.UID = "uid-other" }},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podNamed("a")
			prepared := &bench{unwanted: map[types.UID]bool{}}
			c.prepare(prepared, pod) // what concerns the pod
			b := newBench(t, pod)
			c.prepare(b, pod.DeepCopy())
			b.evict(podNamed("a"))
			b.settle()
			if b.writes() != 0 || len(b.deletes) != 0 || len(b.told) != 0 {
				t.Errorf("%d writes, %d deletions, told %q", b.writes(), len(b.deletes), b.told)
			}
		})
	}
}

func TestAProcessThatDoesNotLeadWritesNothing(t *testing.T) {
	b := newBench(t, podNamed("a"))
	b.leads = false
	b.evict(podNamed("a"))
	b.eventually("it was tried twice", func() bool { return b.e.queue.NumRequeues(key{"uid-a", evict}) >= 2 })
	if n := len(b.client.Actions()); n != 0 {
		t.Errorf("%d calls", n)
	}
	b.set(func() { b.leads = true })
	b.settle()
	if b.get("a") != nil {
		t.Error("the pod is still there")
	}
}

func TestEvictionsAreBoundedAndAllAreCarriedOut(t *testing.T) {
	var pods []*corev1.Pod
	for i := range 200 {
		pods = append(pods, podNamed(fmt.Sprint("p", i)))
	}
	b := newBench(t, pods...)
	for _, p := range pods {
		b.evict(p)
	}
	b.settle()
	if len(b.deletes) != len(pods) || b.most > workers {
		t.Errorf("%d of %d pods were deleted, %d at a time", len(b.deletes), len(pods), b.most)
	}
}

func TestOnlyAPodThatWaitsLosesItsNominatedNode(t *testing.T) {
	for name, bound := range map[string]string{"waits": "", "is bound": "n1"} {
		t.Run(name, func(t *testing.T) {
			pod := podNamed("a")
			pod.Spec.NodeName, pod.Status.NominatedNodeName = bound, "n1"
			b := newBench(t, pod)
			b.e.ClearNomination(b.client, types.NamespacedName{Namespace: "ns", Name: "a"}, "uid-a")
			b.settle()
			if got := b.get("a").Status.NominatedNodeName; (got == "") != (bound == "") {
				t.Errorf("nominated node %q", got)
			}
			if b.get("a") == nil || len(b.deletes) != 0 {
				t.Error("the pod was deleted")
			}
		})
	}
}
