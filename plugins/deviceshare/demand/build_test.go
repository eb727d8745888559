// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/wire"
)

// instance is the label of node types in these tests.
const instance = corev1.LabelInstanceTypeStable

func settings() *nodes.Settings {
	s := nodes.DefaultSettings()
	return &s
}

// cards are devices of 80 GiB with ten slots each, in mode hami-core.
func cards(node string, n int) sharing.Inventory {
	inv := sharing.Inventory{Node: node}
	for i := range n {
		inv.Devices = append(inv.Devices, sharing.Device{
			ID: sharing.DeviceID(fmt.Sprintf("GPU-%s-%d", node, i)), Index: i, Model: "NVIDIA A100-SXM4-80GB", Memory: sharing.MiBs(80 << 10), Cores: 100,
			MaxShares: 10, Healthy: true, Mode: sharing.HAMiCore, NUMA: i * 2 / n, PCI: fmt.Sprintf("0000:%02d:00.0", i),
		})
	}
	return inv
}

// amounts is what a node with these devices offers, beside 96 processors and 1 TiB.
func amounts(inv sharing.Inventory) corev1.ResourceList {
	var slots, memory, cores int64
	for i := range inv.Devices {
		d := &inv.Devices[i]
		slots, memory, cores = slots+int64(d.MaxShares), memory+d.Memory.WholeMiB(), cores+int64(d.Cores)
	}
	list := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("96"), corev1.ResourceMemory: resource.MustParse("1Ti"), corev1.ResourcePods: resource.MustParse("110"),
	}
	for name, n := range map[corev1.ResourceName]int64{wire.ResourceNumber: slots, wire.ResourceMemory: memory, wire.ResourceCores: cores} {
		list[name] = *resource.NewQuantity(n, resource.DecimalSI)
	}
	return list
}

// nodeOf is a node of a type, as its device plugin leaves it.
func nodeOf(t testing.TB, kind string, inv sharing.Inventory) *corev1.Node {
	t.Helper()
	annotations, err := wire.NodeAnnotations(inv, 1)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: inv.Node, Annotations: annotations, Labels: map[string]string{instance: kind, corev1.LabelHostname: inv.Node}},
		Status:     corev1.NodeStatus{Allocatable: amounts(inv)},
	}
}

// seen is such a node of which nothing is used.
func seen(t testing.TB, kind string, inv sharing.Inventory) Seen {
	t.Helper()
	n := nodeOf(t, kind, inv)
	return Seen{Node: n, Inventory: &inv, TakesPods: true, Idle: AmountsOf(n.Status.Allocatable)}
}

// typeOf is the type that such a node shows.
func typeOf(t testing.TB, kind string, inv sharing.Inventory) NodeType {
	t.Helper()
	got, err := TypeOf(kind, nodeOf(t, kind, inv), &inv)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// pod asks for number devices with so many MiB and so much compute each, and autoscalers see it.
func pod(t testing.TB, name string, number, memory, cores int64, change ...func(*corev1.Pod)) Waiting {
	t.Helper()
	limits := corev1.ResourceList{}
	for name, n := range map[corev1.ResourceName]int64{wire.ResourceNumber: number, wire.ResourceMemory: memory, wire.ResourceCores: cores} {
		if n > 0 {
			limits[name] = *resource.NewQuantity(n, resource.DecimalSI)
		}
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Limits: limits, Requests: limits}}}},
		Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable},
		}},
	}
	for _, c := range change {
		c(p)
	}
	request, mistakes := settings().ReadRequest(p)
	if len(mistakes) > 0 {
		t.Fatal(mistakes)
	}
	binpack, _ := policy.Named("binpack")
	return Waiting{Pod: Pod{Object: p, Request: request, Backends: factory.New(), Policy: binpack}, IsLong: true}
}

// pods are n pods that ask for the same.
func pods(t testing.TB, n int, number, memory, cores int64, change ...func(*corev1.Pod)) []Waiting {
	t.Helper()
	var all []Waiting
	for i := range n {
		all = append(all, pod(t, fmt.Sprintf("p%d", i), number, memory, cores, change...))
	}
	return all
}

// question asks with the shipped settings.
func question(waiting []Waiting, kinds []NodeType, there ...Seen) *Question {
	return &Question{Waiting: waiting, Types: kinds, Seen: there, TypeLabel: instance, Settings: settings(), Backends: factory.New()}
}

// count is how many nodes an answer asks for, by type.
func count(a Answer) map[string]int {
	n := map[string]int{}
	for _, w := range a.Wishes {
		n[w.Type]++
	}
	return n
}
