// SPDX-License-Identifier: Apache-2.0

package offline_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/config"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/offline"
	"deviceshare/sharing/factory"
)

// full is a node with two devices, each of which one pod of a budget has: "x" and "y".
type full struct {
	*testing.T
	cluster *offline.Cluster
}

func newFull(t *testing.T) *full {
	t.Helper()
	d := config.DefaultDevice()
	c, err := offline.New(offline.Options{Backends: factory.New(), SchedulerName: "volcano", Now: time.Unix(1700000000, 0),
		Settings: nodes.Settings{Names: d.Names(), Factor: d.MemoryFactor, Defaults: d.Defaults()}})
	if err != nil {
		t.Fatal(err)
	}
	f := &full{t, c}
	f.add(nodeOf(t, card{"n", "Tesla T4", "hami-core"}), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 100})
	f.start("x", "")
	f.start("y", "")
	return f
}

func (f *full) add(objects ...any) {
	f.Helper()
	for _, o := range objects {
		if err := f.cluster.Add(o); err != nil {
			f.Fatal(err)
		}
	}
}

// start has a pod come that wants a device alone, and the scheduler run. The budget selects pods
// without a class.
func (f *full) start(name, class string) {
	f.Helper()
	limits := amounts(map[string]string{"volcano.sh/vgpu-number": "1"})
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team", UID: types.UID("uid-" + name), Annotations: map[string]string{"scheduling.k8s.io/group-name": name}},
		Spec: corev1.PodSpec{SchedulerName: "volcano", PriorityClassName: class,
			Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if class == "" {
		p.Labels = map[string]string{"app": "web"}
	}
	f.add(&schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team"},
		Spec:       schedulingv1beta1.PodGroupSpec{MinMember: 1, Queue: "default", PriorityClassName: class},
		Status:     schedulingv1beta1.PodGroupStatus{Phase: schedulingv1beta1.PodGroupPending},
	}, p)
	if _, err := f.cluster.Settle(); err != nil {
		f.Fatal(err)
	}
}

func (f *full) remove(name string) {
	f.Helper()
	of := types.NamespacedName{Namespace: "team", Name: name}
	if err := f.cluster.RemovePod(of); err != nil {
		f.Fatal(err)
	}
	f.cluster.RemoveGroup(of)
}

// edit replaces pod x.
func (f *full) edit(change func(*corev1.Pod)) {
	f.Helper()
	p, there := f.cluster.Pod(types.NamespacedName{Namespace: "team", Name: "x"})
	if !there {
		f.Fatal("there is no pod x")
	}
	p = p.DeepCopy()
	change(p)
	f.add(p)
}

// What a budget allows is what the disruption controller would write: each healthy pod that is gone
// counts, each that starts counts again.
func TestABudgetKnowsThePodsThatComeAndGo(t *testing.T) {
	addNode := func(f *full) { f.add(nodeOf(f.T, card{"m", "Tesla T4", "hami-core"})) }
	for name, c := range map[string]struct {
		allowed   int32
		disrupted map[string]metav1.Time
		change    func(*full)
		// important pods come, and for as many as evicted a pod has to leave.
		important, evicted int
	}{
		"each eviction counts":              {1, nil, func(*full) {}, 2, 1},
		"so does a pod that is removed":     {1, nil, func(f *full) { f.remove("x") }, 2, 0},
		"until another has started":         {1, nil, func(f *full) { f.remove("x"); f.start("z", "") }, 1, 1},
		"one more makes up for an eviction": {1, nil, func(f *full) { addNode(f); f.start("z", "") }, 4, 2},
		"but may make up for one it lacked": {0, nil, func(f *full) { addNode(f); f.start("z", "") }, 2, 0},
		"a pod that is replaced is there":   {1, nil, func(f *full) { f.edit(func(*corev1.Pod) {}) }, 1, 1},
		"a pod that starts is not healthy": {1, nil, func(f *full) {
			f.edit(func(p *corev1.Pod) { p.Status.Phase = corev1.PodPending })
			f.remove("x")
		}, 2, 1},
		"nor one that is being deleted": {1, nil, func(f *full) {
			f.edit(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1700000000, 0)} })
			f.remove("x")
		}, 2, 1},
		"the API server has counted one": {1, map[string]metav1.Time{"x": {}}, func(f *full) { f.remove("x") }, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFull(t)
			f.add(&policyv1.PodDisruptionBudget{
				ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web"},
				Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
				Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: c.allowed, DisruptedPods: c.disrupted},
			})
			c.change(f)
			for i := range c.important {
				f.start(fmt.Sprint("important-", i), "high")
			}
			if got := len(f.cluster.Evicted()); got != c.evicted {
				t.Errorf("%d pods were evicted, want %d", got, c.evicted)
			}
		})
	}
}

func TestABudgetWithAWrongSelectorIsRefused(t *testing.T) {
	wrong := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Is"}}}}}
	if err := newFull(t).cluster.Add(wrong); err == nil || !strings.Contains(err.Error(), "PodDisruptionBudget team/web") {
		t.Errorf("got %v", err)
	}
}
