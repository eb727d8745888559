// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	k8stesting "k8s.io/client-go/testing"

	"deviceshare/plugins/deviceshare/demand"
)

// growing is a lab whose cluster grows: nodes are asked for.
type growing struct{ *lab }

// newGrowing returns such a lab with one node of type big, with two devices, on which others have
// most of each.
func newGrowing(t *testing.T, patience time.Duration, objects ...runtime.Object) growing {
	t.Helper()
	full := []runtime.Object{big(t, "n1"), groupOf("old", 0), on(t, "a", "old", "n1", 0, 7000), on(t, "b", "old", "n1", 1, 7000)}
	g := growing{newLab(t, append(full, objects...)...)}
	if _, err := g.client.CoreV1().ConfigMaps("system").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: demand.ConfigMap}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	g.nameUtilityPods()
	o := demand.Options{Namespace: "system", TypeLabel: corev1.LabelInstanceTypeStable, Patience: patience}
	g.store.demand = demand.New(o, g.store.backends, g.store.lead, g.store.report)
	t.Cleanup(func() { g.store.demand.Close() })
	g.eventually("the type is learned", func() bool {
		g.tick()
		m, err := g.client.CoreV1().ConfigMaps("system").Get(t.Context(), demand.ConfigMap, metav1.GetOptions{})
		return err == nil && m.Data["big"] != ""
	})
	return g
}

// nameUtilityPods has the fake API server make and delete utility pods as a real one does.
func (g growing) nameUtilityPods() {
	made := 0
	g.client.PrependReactor("create", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if pod, ok := a.(k8stesting.CreateAction).GetObject().(*corev1.Pod); ok && a.GetNamespace() == "system" {
			made++
			pod.Name = fmt.Sprint(pod.GenerateName, made)
		}
		return false, nil, nil
	})
	g.client.PrependReactor("delete", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if a.GetNamespace() != "system" {
			return false, nil, nil
		}
		return true, nil, g.client.Tracker().Delete(a.GetResource(), "system", a.(k8stesting.DeleteAction).GetName())
	})
}

// big is a node of type big, with two devices of 10000 MiB.
func big(t *testing.T, name string) *corev1.Node {
	n := nodeOf(t, devices(name, 2, 10000))
	n.Labels = map[string]string{corev1.LabelInstanceTypeStable: "big", corev1.LabelHostname: name}
	return n
}

// asked are the types of the nodes that are asked for.
func (g growing) asked() []string {
	g.t.Helper()
	all, err := g.client.CoreV1().Pods("system").List(g.t.Context(), metav1.ListOptions{})
	if err != nil {
		g.t.Fatal(err)
	}
	var kinds []string
	for i := range all.Items {
		kinds = append(kinds, all.Items[i].Spec.NodeSelector[corev1.LabelInstanceTypeStable])
	}
	return kinds
}

// waitsFor ticks until so many nodes are asked for.
func (g growing) waitsFor(n int) {
	g.t.Helper()
	g.eventually(fmt.Sprint(n, " nodes are asked for"), func() bool { g.tick(); return len(g.asked()) == n })
}

// asksForNone creates objects and a pod that needs a node for itself: when that is asked for, none
// must be for the others, who have waited for as long.
func (g growing) asksForNone(why string, objects ...runtime.Object) {
	g.t.Helper()
	g.create(append(objects, groupOf("control", 1), podOf("control", "control", asks{number: 2}))...)
	g.eventually("a node is needed", func() bool { g.tick(); return g.store.demand.Needed()["big"] > 0 })
	for range 60 {
		if got := g.store.demand.Needed()["big"]; got != 1 {
			g.t.Fatalf("needs %d nodes though %s", got, why)
		}
		g.tick()
	}
	g.waitsFor(1)
}

func TestANodeIsAskedForWhenPodsLackDevicesAndNoMoreWhenItHasCome(t *testing.T) {
	g := newGrowing(t, 0)
	began := g.seconds.Load()
	g.create(groupOf("g", 1), podOf("p", "g", asks{number: 2, memory: 5000}), podOf("q", "g", asks{number: 2, memory: 5000}))
	g.waitsFor(1)
	if took := g.seconds.Load() - began; took < 60 {
		t.Errorf("asked for after %d s", took)
	}
	const text = "The cluster's autoscaler is asked for nodes of type big."
	g.eventually("the pods are told", func() bool {
		g.tick()
		return strings.Contains(g.status.message("p"), text) && strings.Contains(g.status.message("q"), text)
	})
	g.create(big(t, "n2"))
	g.eventually("both pods are bound", func() bool { g.tick(); return g.isBound("p") && g.isBound("q") })
	g.waitsFor(0)
	if got := g.evictions(); len(got) > 0 {
		t.Errorf("evicted %q", got)
	}
}

// As many more utility pods are made as there are empty nodes, which the first ones seem to fit: in
// this world nobody writes the conditions by which autoscalers see the pods of the gang.
func TestNodesAreAskedForTheMissingPodsOfAGang(t *testing.T) {
	g := newGrowing(t, 0, big(t, "empty"))
	objects := []runtime.Object{groupOf("g", 3)}
	for i := range 3 {
		objects = append(objects, podOf(fmt.Sprint("p", i), "g", asks{number: 2}))
	}
	g.create(objects...)
	g.waitsFor(2 + 1)
	g.create(big(t, "n2"))
	g.eventually("one node is needed", func() bool { g.tick(); return g.store.demand.Needed()["big"] == 1 })
	g.waitsFor(1 + 2)
	g.create(big(t, "n3"))
	g.eventually("the gang is bound", func() bool { g.tick(); return g.isBound("p0") && g.isBound("p1") && g.isBound("p2") })
	g.waitsFor(0)
}

func TestNoNodeIsAskedForPodsThatWaitForSomethingElse(t *testing.T) {
	for why, objects := range map[string][]runtime.Object{
		"the gang has too few pods": {groupOf("g", 2), podOf("p", "g", asks{number: 2})},
		"the queue has a limit":     {groupIn("limited", "g", 1), podOf("p", "g", asks{number: 2, memory: 6000})},
		"no type has such a device": {groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 10001})},
		"the pod has a gate": {groupOf("g", 1), func() *corev1.Pod {
			p := podOf("p", "g", asks{number: 2})
			p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "wait"}}
			return p
		}()},
	} {
		t.Run(why, func(t *testing.T) {
			g := newGrowing(t, 0)
			g.cache.AddQueueV1beta1(queueOf("limited", amountsOf(t, "memory=1000")))
			g.asksForNone(why, objects...)
		})
	}
}

func TestNobodyIsEvictedWhileANodeIsComing(t *testing.T) {
	g := newGrowing(t, 5*time.Minute)
	began := g.seconds.Load()
	g.create(important("high", "high", 1), podOf("high", "high", asks{number: 2, memory: 9000}))
	g.waitsFor(1)
	for g.seconds.Load() < began+300 {
		if got := g.evictions(); len(got) > 0 {
			t.Fatalf("evicted %q after %d s", got, g.seconds.Load()-began)
		}
		g.tick()
	}
	g.eventually("the pod is bound at last", func() bool { g.tick(); return g.isBound("high") })
	if got := slices.Sorted(slices.Values(g.evictions())); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("evicted %q", got)
	}
	g.waitsFor(0)
}

// No type of node serves the pod, so that there is nothing to wait for.
func TestEvictionsDoNotWaitForANodeThatWouldNotHelp(t *testing.T) {
	g := newGrowing(t, time.Hour)
	g.create(important("high", "high", 1), func() *corev1.Pod {
		p := podOf("high", "high", asks{number: 2, memory: 9000})
		p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "n1"}
		return p
	}())
	began := g.seconds.Load()
	g.eventually("the pod is bound", func() bool { g.tick(); return g.isBound("high") })
	if took := g.seconds.Load() - began; took > 60 {
		t.Errorf("bound after %d s", took)
	}
}
