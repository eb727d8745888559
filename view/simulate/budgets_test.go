// SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/sharing/wire"
	"deviceshare/view"
	"deviceshare/view/capture"
	"deviceshare/view/simulate"
)

// budget allows so many evictions of the pods with a label.
func budget(app string, allowed int32) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "budget-of-" + app},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	}
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// replica is a running pod of a controller, which may move, with a label.
func replica(t testing.TB, name, node, app string, mib int64) *corev1.Pod {
	t.Helper()
	isController := true
	p := placedOn(t, name, node, mib)
	p.UID, p.Labels = types.UID("uid-"+name), map[string]string{"app": app}
	p.Annotations[wire.UserMayMove] = wire.MayMove
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "x", UID: "rs", Controller: &isController}}
	return p
}

// gone are the names of the pods that had to leave, sorted.
func gone(w *view.WhatIf) []string {
	var names []string
	for _, e := range w.Evicted {
		names = append(names, strings.TrimPrefix(e.Pod, "default/"))
	}
	slices.Sort(names)
	return names
}

const whole = "volcano.sh/vgpu-number: 1"

// Either of two pods could move to the node of the other.
func TestAPodThatABudgetProtectsDoesNotMove(t *testing.T) {
	for name, c := range map[string]struct {
		budgets []any
		gone    []string
	}{
		"the pod on a":         {[]any{budget("x", 0)}, []string{"y"}},
		"the pod on b":         {[]any{budget("y", 0)}, []string{"x"}},
		"both":                 {[]any{budget("x", 0), budget("y", 0)}, nil},
		"one, and may move":    {[]any{budget("x", 1), budget("y", 0)}, []string{"x"}},
		"a pod of other names": {[]any{budget("x", 0), budget("z", 0)}, []string{"y"}},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append(c.budgets, namespace("default", nil), node("a", 1), node("b", 1), group("x"), group("y"),
				replica(t, "x", "a", "x", 4096), replica(t, "y", "b", "y", 4096))
			w := ask(t, again(t, captured(objects...)), simulate.Question{Add: added(t, asks("whole", whole))})
			if got := gone(w); !slices.Equal(got, c.gone) || (outcome(t, w, "default/whole").Node == "") != (c.gone == nil) {
				t.Errorf("evicted %v, want %v; whole: %+v", got, c.gone, outcome(t, w, "default/whole"))
			}
			if why := outcome(t, w, "default/whole").Why; c.gone == nil && !strings.Contains(why, "protected by PodDisruptionBudgets: default/budget-of-x, default/budget-of-y") {
				t.Errorf("told %q", why)
			}
		})
	}
}

func TestAPodThatABudgetProtectsIsNotEvictedForAMoreImportantOne(t *testing.T) {
	for protected, leaves := range map[string]string{"x": "y", "y": "x"} {
		s := captured(node("a", 1), node("b", 1), placed(t, "x", "a"), placed(t, "y", "b"), group("x"), group("y"), budget(protected, 0),
			&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 100})
		w := ask(t, again(t, s), simulate.Question{Add: added(t, asks("whole", whole, "  priorityClassName: high\n"))})
		if got := gone(w); !slices.Equal(got, []string{leaves}) || outcome(t, w, "default/whole").Node == "" {
			t.Errorf("%s is protected: evicted %v; whole: %+v", protected, got, outcome(t, w, "default/whole"))
		}
	}
}

// placed is a running pod that has a device alone, with its name as a label.
func placed(t testing.TB, name, node string) *corev1.Pod {
	t.Helper()
	p := placedOn(t, name, node, memory)
	p.UID, p.Labels = types.UID("uid-"+name), map[string]string{"app": name}
	return p
}

// twoReplicas are two pods of one budget on nodes a and b. Each may move to c and to d, where
// others stay.
func twoReplicas(t testing.TB, allowed int32) []any {
	return []any{
		namespace("default", nil), node("a", 1), node("b", 1), node("c", 1), node("d", 1), group("x"), group("y"), group("other-1"), group("other-2"),
		replica(t, "x", "a", "web", 10240), replica(t, "y", "b", "web", 10240), replica(t, "other-1", "c", "other", 4096), replica(t, "other-2", "d", "other", 4096),
		budget("web", allowed), budget("other", 0),
	}
}

// What a budget allows is used up by the pod that moves first, however many cycles pass until the
// second would move.
func TestNoMorePodsMoveThanABudgetAllows(t *testing.T) {
	for allowed, want := range []int{0, 1, 2} {
		for _, oneByOne := range []bool{false, true} {
			for _, hashed := range []bool{false, true} {
				s := captured(twoReplicas(t, int32(allowed))...)
				if hashed {
					s = s.Hash([]byte("salt"))
				}
				w := ask(t, again(t, s), simulate.Question{Add: added(t, asks("one", whole)+asks("two", whole)), OneByOne: oneByOne})
				if len(w.Evicted) != want || w.After.Waiting != 2-want {
					t.Errorf("allowed %d, one by one %v, hashed %v: evicted %v, and %d wait", allowed, oneByOne, hashed, gone(w), w.After.Waiting)
				}
			}
		}
	}
}

// A pod whose node leaves is missing from its budget until it has another place.
func TestABudgetLacksThePodsOfNodesThatLeave(t *testing.T) {
	for name, c := range map[string]struct {
		allowed int32
		zone    string
		gone    []string
	}{
		"the pod has another place":      {1, "zone-c", []string{"y"}},
		"the pod waits":                  {1, "zone-a", nil},
		"the pod waits, and another may": {2, "zone-a", []string{"y"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := captured(twoReplicas(t, c.allowed)...)
			i := slices.IndexFunc(s.Scheduling.Pods, func(p *corev1.Pod) bool { return p.Name == "x" })
			s.Scheduling.Pods[i].Spec.NodeSelector = map[string]string{"zone": c.zone}
			w := ask(t, again(t, s), simulate.Question{Remove: []string{"a"}, Add: added(t, asks("whole", whole))})
			if got := gone(w); !slices.Equal(got, c.gone) {
				t.Errorf("evicted %v, want %v: %s", got, c.gone, w.Text(view.Paint{}, true))
			}
		})
	}
}

func TestALabelOfANamespaceLetsItsPodsMove(t *testing.T) {
	for value, moves := range map[string]bool{wire.MayMove: true, wire.MustStay: false, "": false} {
		for _, hashed := range []bool{false, true} {
			x := replica(t, "x", "a", "web", 4096)
			delete(x.Annotations, wire.UserMayMove)
			y := replica(t, "y", "b", "web", 4096)
			y.Annotations[wire.UserMayMove] = wire.MustStay
			s := captured(namespace("default", map[string]string{wire.UserMayMove: value}), node("a", 1), node("b", 1), group("x"), group("y"), x, y)
			if hashed {
				s = s.Hash([]byte("salt"))
			}
			w := ask(t, again(t, s), simulate.Question{Add: added(t, asks("whole", whole))})
			if moved := len(w.Evicted) == 1; moved != moves || len(w.Evicted) > 1 {
				t.Errorf("label %q, hashed %v: evicted %+v", value, hashed, w.Evicted)
			}
		}
	}
}

// Pods select namespaces by labels, in their affinity to other pods.
func TestAPodFleesPodsOfNamespacesWithALabel(t *testing.T) {
	name := func(namespace string) map[string]string {
		return map[string]string{"kubernetes.io/metadata.name": namespace}
	}
	noise := func(namespace, node string) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "noise", UID: types.UID("noise-" + namespace)},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "main"}}},
			Status:     corev1.PodStatus{Phase: corev1.PodRunning},
		}
	}
	for loud, quiet := range map[string]string{"a": "b", "b": "a"} {
		for _, hashed := range []bool{false, true} {
			flees := placed(t, "flees", "a")
			flees.Annotations, flees.Spec.NodeName, flees.Status.Phase = map[string]string{wire.GroupName: "flees"}, "", corev1.PodPending
			flees.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: "kubernetes.io/hostname", LabelSelector: &metav1.LabelSelector{}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: name("loud")},
			}}}}
			s := captured(node("a", 1), node("b", 1), flees, group("flees"), noise("loud", loud), noise("quiet", quiet),
				namespace("loud", name("loud")), namespace("quiet", name("quiet")))
			if hashed {
				s = s.Hash([]byte("salt"))
			}
			w := ask(t, again(t, s), simulate.Question{})
			if len(w.Pods) != 1 || w.Pods[0].Node != nodeOf(s, "GPU-"+quiet+"-0") {
				t.Errorf("hashed %v: %+v, want it on %s", hashed, w.Pods, quiet)
			}
		}
	}
}

// nodeOf is the name of the node that has a device, which is hashed where names are.
func nodeOf(s *capture.State, device string) string {
	i := slices.IndexFunc(s.Nodes, func(n *corev1.Node) bool { return strings.Contains(n.Annotations[wire.NodeInventory], device) })
	return s.Nodes[i].Name
}

// A capture of an earlier program does not tell whether budgets protect pods.
func TestEvictionsAreDoubtedIfTheCaptureHasNoBudgets(t *testing.T) {
	for name, c := range map[string]struct {
		more []any
		add  string
		note bool
	}{
		"a pod moves":                      {add: whole, note: true},
		"a pod moves, and budgets are not": {more: []any{namespace("default", nil)}, add: whole},
		"no pod moves":                     {add: share(1024)},
	} {
		t.Run(name, func(t *testing.T) {
			objects := append(c.more, node("a", 1), node("b", 1), group("x"), group("y"), replica(t, "x", "a", "x", 4096), replica(t, "y", "b", "y", 4096))
			w := ask(t, again(t, captured(objects...)), simulate.Question{Add: added(t, asks("new", c.add))})
			if got := strings.Contains(strings.Join(w.Notes, ""), "neither namespaces nor PodDisruptionBudgets"); got != c.note {
				t.Errorf("evicted %v, notes %q", gone(w), w.Notes)
			}
		})
	}
}
