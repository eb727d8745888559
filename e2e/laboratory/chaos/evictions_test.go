// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
)

// leaves is a pod that was evicted with a text.
func leaves(name string, priority int32, text string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name, UID: types.UID(name)},
		Spec: corev1.PodSpec{Priority: &priority},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
			Reason: corev1.PodReasonPreemptionByScheduler, Message: text}}}}
}

const spared = `; pods with the annotation volcano.sh/preemptable "false" are spared`

func TestAPodThatWasEvictedHadToBe(t *testing.T) {
	right := "makes room on real-0 for chaos/winner (priority 100, this one -10)" + spared
	annotated, budget := leaves("victim", -10, right), leaves("victim", -10, right)
	annotated.Annotations = map[string]string{preemptableKey: "false"}
	budget.Labels = map[string]string{budgeted: "true"}
	for name, c := range map[string]struct {
		victim *corev1.Pod
		want   string // empty if nothing is wrong
	}{
		"one for a more important one":             {leaves("victim", -10, right), ""},
		"one that is gone before it could be seen": {leaves("victim", 0, "makes room on real-0 for chaos/unseen (priority 100, this one 0)"+spared), ""},
		"one whose annotation spares it":           {annotated, "although its annotation volcano.sh/preemptable spares it"},
		"one that a budget spares":                 {budget, "although a PodDisruptionBudget spares it"},
		"one for another of the same priority":     {leaves("victim", 100, "makes room on real-0 for chaos/winner (priority 100, this one 100)"+spared), "not more important"},
		"one that is less important than said":     {leaves("victim", -10, "makes room on real-0 for chaos/winner (priority 100, this one 0)"+spared), "than its own, -10"},
		"one for a pod that was said to be more":   {leaves("victim", -10, "makes room on real-0 for chaos/winner (priority 200, this one -10)"+spared), "of another priority, 100"},
		"one that is not told for whom":            {leaves("victim", -10, "Preempted to accommodate a higher priority pod"), "for nobody"},
		"one that moves":                           {leaves("victim", -10, "makes room on n1 for chaos/winner; it may move, and a place is kept for it on n4"), "for nobody"},
		"one whose node the kubelet shuts down": {&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.DisruptionTarget, Reason: corev1.PodReasonTerminationByKubelet}}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			important := int32(100)
			winner := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "winner"}, Spec: corev1.PodSpec{Priority: &important}}
			got := wrongEvictions(Scene{Standings: map[string]Standing{"v": readStanding(c.victim), "w": readStanding(winner)}})
			if (len(got) > 0) != (c.want != "") || len(got) > 0 && !strings.Contains(got[0].Text, c.want) {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestEvictionsAreCounted(t *testing.T) {
	for_ := func(name string) *Eviction { return &Eviction{For: "chaos/" + name} }
	got := countEvictions(map[string]Standing{
		"1": {Name: "chaos/a", Eviction: for_("x"), Placed: true}, "2": {Name: "chaos/b", Eviction: for_("x")}, "3": {Name: "chaos/c", Eviction: for_("y")},
		"4": {Name: "chaos/x", Placed: true}, "5": {Name: "chaos/y"}, "6": {Name: "chaos/d", Eviction: &Eviction{}}, "7": {Name: "chaos/e", Eviction: for_("gone")},
	})
	if want := (Evictions{Victims: 4, For: 3, InVain: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A pod that nobody of its lane deleted was evicted, or nobody could look.
func TestWhoIsGoneWasEvicted(t *testing.T) {
	killed := []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 137}}}}
	greedy := []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Error", ExitCode: unmet}}}}
	evicted := func(reason string, of []corev1.ContainerStatus) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: of,
			Conditions: []corev1.PodCondition{{Type: corev1.DisruptionTarget, Reason: reason}}}}
	}
	for name, c := range map[string]struct {
		final *corev1.Pod
		kind  string // under which it is counted; empty for a violation
	}{
		"one that was told for whom":                    {evicted(corev1.PodReasonPreemptionByScheduler, killed), "pods evicted"},
		"one whose scheduler was killed before it told": {evicted("EvictionByEvictionAPI", nil), "pods evicted"},
		"one that was deleted while no API server was":  {nil, "pods gone while the API server could not be watched"},
		"one that got too much before it was evicted":   {evicted("EvictionByEvictionAPI", greedy), ""},
		"one that was deleted by nobody knows whom":     {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}, ""},
		"one that the kubelet ended":                    {evicted(corev1.PodReasonTerminationByKubelet, killed), ""},
		"one that had done its work and was deleted":    {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodSucceeded}}, ""},
		"one whose condition is about something else":   {&corev1.Pod{Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Reason: corev1.PodReasonPreemptionByScheduler}}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			found := 0
			traffic := &Traffic{Client: fake.NewClientset(), History: NewHistory(time.Now), Found: func(Violation) { found++ }}
			traffic.judgeGone("p", c.final)
			if (found > 0) != (c.kind == "") || c.kind != "" && traffic.History.Of(c.kind) != 1 {
				t.Errorf("%d violations, counted:\n%s", found, traffic.History.Counts())
			}
		})
	}
}

func TestAnEventTellsOfAPodThatNobodySawLeave(t *testing.T) {
	told := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "e"}, Reason: "Preempted", InvolvedObject: corev1.ObjectReference{UID: "u"}}
	traffic := &Traffic{Client: fake.NewClientset(told), History: NewHistory(time.Now)}
	if !traffic.isToldToLeave(t.Context(), "u") || traffic.History.Of("pods evicted, as an event says") != 1 {
		t.Errorf("counted:\n%s", traffic.History.Counts())
	}
	traffic.Client = fake.NewClientset()
	if traffic.isToldToLeave(t.Context(), "u") {
		t.Error("without an event")
	}
}

// Whoever is woken is looked at again by its controller: something of it has changed, and nothing
// that it does.
func TestAControlledObjectIsWokenByAnAnnotation(t *testing.T) {
	client := fake.NewClientset()
	for _, o := range []Controlled{newJob("j", pod("p").Build()), newDeployment("d", 1000)} {
		if err := o.Create(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		if err := o.Wake(t.Context(), client); err != nil {
			t.Errorf("%s: %v", o.Kind(), err)
		}
	}
	j, _ := client.BatchV1().Jobs(Namespace).Get(t.Context(), "j", metav1.GetOptions{})
	d, _ := client.AppsV1().Deployments(Namespace).Get(t.Context(), "d", metav1.GetOptions{})
	if len(j.Annotations) != 1 || len(d.Annotations) != 1 || *d.Spec.Replicas != deployed {
		t.Errorf("job %v, deployment %v", j.ObjectMeta, d.ObjectMeta)
	}
}

func TestTheLastOfAPodIsKnownUnlessNobodyCouldLook(t *testing.T) {
	f := farewells{last: map[types.UID]*corev1.Pod{}}
	seen, stale := leaves("seen", 0, "text"), leaves("stale", 0, "text")
	f.note(seen)
	f.note(cache.DeletedFinalStateUnknown{Key: "chaos/stale", Obj: stale})
	if got := f.of(t.Context(), "seen"); got != seen {
		t.Errorf("got %v", got)
	}
	if got := f.of(t.Context(), "stale"); got != nil {
		t.Errorf("a pod that may have changed since: %v", got)
	}
}

func TestTheLastOfPodsIsWatched(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "p", UID: "u"}}
	client, f := fake.NewClientset(pod), farewells{last: map[types.UID]*corev1.Pod{}}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { f.follow(ctx, client); close(ended) }()
	for {
		// The watch may not have begun: then its list comes after the deletion, and nothing of the
		// pod is ever heard. So it is made and deleted until it is.
		_, _ = client.CoreV1().Pods(Namespace).Create(ctx, pod, metav1.CreateOptions{})
		_ = client.CoreV1().Pods(Namespace).Delete(ctx, "p", metav1.DeleteOptions{})
		f.mu.Lock()
		got := f.last["u"]
		f.mu.Unlock()
		if got != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	stop()
	<-ended
}
