// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing/wire"
)

func TestAUtilityPodFitsNewNodesOnlyAndNobodyPlacesIt(t *testing.T) {
	selective := func(p *corev1.Pod) {
		unseen(p)
		p.Spec.NodeSelector = map[string]string{"pool": "gpu"}
		p.Spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"a"}}}}}},
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 1}}}}
	}
	kind := typeOf(t, "big", cards("x", 8))
	kind.Node.Labels["pool"], kind.Node.Labels["zone"] = "gpu", "a"
	kind.Node.Spec.Taints = []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectNoSchedule}}
	a := Decide(question(pods(t, 1, 1, 0, 0, selective), []NodeType{kind}))
	if len(a.Wishes) != 1 {
		t.Fatalf("asks for %v", a.Wishes)
	}
	pod := a.Wishes[0].Pod("system")
	if why := nodes.KeptOff(pod, kind.Node); why != "" {
		t.Errorf("it is kept off a new node: %s", why)
	}
	elsewhere := kind.Node.DeepCopy()
	elsewhere.Labels["zone"] = "b"
	if nodes.KeptOff(pod, elsewhere) == "" {
		t.Error("it seems to fit a node that the pod which waits may not have")
	}
	free := AmountsOf(kind.Node.Status.Allocatable)
	if !free.takeIfFits(requestsOf(pod)) || free.takeIfFits(Amounts{wire.ResourceNumber: 1000}) {
		t.Errorf("a new node has %v left", free)
	}
	if pod.Spec.SchedulerName != nobody || pod.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution != nil {
		t.Errorf("the pod is %+v", pod.Spec)
	}
	if pod.Status.Conditions = []corev1.PodCondition{a.Wishes[0].unschedulableCondition(metav1.Now())}; !isUnschedulable(pod) {
		t.Error("autoscalers do not look at it")
	}
}

func TestWhateverUtilityPodsThereAreTheyBecomeThoseThatOughtToBe(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 1000 {
		var wishes []Wish
		for range random.IntN(8) {
			wishes = append(wishes, Wish{Type: fmt.Sprint("kind", random.IntN(3)), Slots: 80, Resource: wire.ResourceNumber})
		}
		var there []*corev1.Pod
		for i := range random.IntN(10) {
			w := Wish{Type: fmt.Sprint("kind", random.IntN(4)), Slots: 80, Resource: wire.ResourceNumber}
			p := w.Pod("system")
			p.Name = fmt.Sprint("pod", i)
			if random.IntN(3) > 0 {
				p.Status.Conditions = []corev1.PodCondition{w.unschedulableCondition(metav1.Now())}
			}
			if random.IntN(5) == 0 {
				now := metav1.Now()
				p.DeletionTimestamp = &now
			}
			there = append(there, p)
		}
		left := map[string]int{}
		for _, p := range there {
			if p.DeletionTimestamp == nil {
				left[p.Labels[wire.UtilityPod]]++
			}
		}
		c := planChanges(there, wishes)
		for _, p := range c.remove {
			left[p.Labels[wire.UtilityPod]]--
		}
		for _, w := range c.create {
			left[w.labelValue()]++
		}
		for _, w := range wishes {
			left[w.labelValue()]--
		}
		for key, n := range left {
			if n != 0 {
				t.Fatalf("seed %d, round %d: %d too many of %s", seed, round, n, key)
			}
		}
		if len(c.create) > 0 && len(c.remove) > 0 && c.create[0].labelValue() == c.remove[0].Labels[wire.UtilityPod] {
			t.Fatalf("seed %d, round %d: a pod is removed, and made again", seed, round)
		}
		for _, p := range c.tell {
			if isUnschedulable(p) {
				t.Fatalf("seed %d, round %d: %s has its condition", seed, round, p.Name)
			}
		}
	}
}
