// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"deviceshare/config"
	"deviceshare/sharing/wire"
)

// publishedNode is a node as our plugin leaves it, with a resource of somebody else's.
func publishedNode(name string, resources ...corev1.ResourceName) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		wire.NodeInventory: "{}", wire.NodeRegister: "r", wire.NodeHandshake: "Requesting_x", wire.NodeConfig: "{}", "other": "stays",
	}}}
	n.Status.Capacity = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("2")}
	for _, r := range resources {
		n.Status.Capacity[r] = resource.MustParse("8")
	}
	n.Status.Allocatable = n.Status.Capacity.DeepCopy()
	return n
}

func pluginPod(name string) *corev1.Pod {
	yes := true
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "plugin", Controller: &yes}}}}
}

// withdrawal is one on a cluster whose plugins never take anything back; see obey.
func withdrawal(objects ...runtime.Object) (Withdrawal, *fake.Clientset) {
	c := fake.NewClientset(append(objects, &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "plugin"}})...)
	return Withdrawal{Client: c, Namespace: "ns", DaemonSet: "plugin", Patience: 50 * time.Millisecond}, c
}

// obey makes the plugins remove their inventory soon after they are told to withdraw.
func obey(t *testing.T, c *fake.Clientset) {
	c.PrependReactor("patch", "nodes", func(a k8stesting.Action) (bool, runtime.Object, error) {
		p := a.(k8stesting.PatchAction)
		if strings.Contains(string(p.GetPatch()), wire.NodeWithdraw+`":"2`) {
			time.AfterFunc(100*time.Millisecond, func() {
				bare := []byte(`{"metadata":{"annotations":{"` + wire.NodeInventory + `":null}}}`)
				if _, err := c.CoreV1().Nodes().Patch(context.Background(), p.GetName(), types.MergePatchType, bare, metav1.PatchOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		return false, nil, nil
	})
}

// bare reports what is left of a node that was published.
func bare(t *testing.T, c *fake.Clientset, name string) (annotations, resources []string) {
	t.Helper()
	n, err := c.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for key := range n.Annotations {
		annotations = append(annotations, key)
	}
	for _, list := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
		for r := range list {
			resources = append(resources, string(r))
		}
	}
	slices.Sort(annotations)
	slices.Sort(resources)
	return annotations, slices.Compact(resources)
}

func TestNothingOfOursIsLeftOnANode(t *testing.T) {
	renamed := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: config.DeviceName},
		Data: map[string]string{config.DeviceKey: "nvidia: {resourceMemoryName: example.com/mem}"}}
	legacy := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "legacy", Annotations: map[string]string{wire.NodeRegister: "theirs"}}}
	w, c := withdrawal(renamed, legacy, publishedNode("a", wire.ResourceMemory, wire.ResourceCores),
		publishedNode("b", "example.com/mem", wire.ResourceCores), publishedNode("c"))
	if err := w.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		annotations, resources := bare(t, c, name)
		if !slices.Equal(annotations, []string{"other"}) || !slices.Equal(resources, []string{"nvidia.com/gpu"}) {
			t.Errorf("node %s has the annotations %q and the resources %q", name, annotations, resources)
		}
	}
	if annotations, _ := bare(t, c, "legacy"); !slices.Equal(annotations, []string{wire.NodeRegister}) {
		t.Errorf("the node of another device plugin has the annotations %q", annotations)
	}
	if _, err := c.AppsV1().DaemonSets("ns").Get(t.Context(), "plugin", metav1.GetOptions{}); err == nil {
		t.Error("the device plugins are not stopped")
	}
	if err := w.Run(t.Context()); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

func TestPluginsTakeTheirDevicesBackThenEndThenNodesAreCleared(t *testing.T) {
	w, c := withdrawal(pluginPod("p"), publishedNode("a"))
	obey(t, c)
	w.Patience = time.Minute
	c.PrependReactor("patch", "nodes", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if !strings.Contains(string(a.(k8stesting.PatchAction).GetPatch()), wire.NodeRegister) {
			return false, nil, nil
		}
		if pods, err := c.Tracker().List(corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"), "ns"); err != nil || len(pods.(*corev1.PodList).Items) > 0 {
			t.Error("cleared while a plugin runs")
		}
		return false, nil, nil
	})
	c.PrependReactor("delete", "daemonsets", func(k8stesting.Action) (bool, runtime.Object, error) {
		n, err := c.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", "a")
		if err != nil || n.(*corev1.Node).Annotations[wire.NodeInventory] != "" {
			t.Errorf("the plugin is ended while it has its devices: %v", err)
		}
		time.AfterFunc(300*time.Millisecond, func() {
			if err := c.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ns", "p"); err != nil {
				t.Error(err)
			}
		})
		return false, nil, nil
	})
	if err := w.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if annotations, _ := bare(t, c, "a"); len(annotations) != 1 {
		t.Errorf("annotations %q", annotations)
	}
}

func TestAPluginThatDoesNotEndIsNotWaitedForForever(t *testing.T) {
	other := pluginPod("other")
	other.OwnerReferences[0].Name = "another"
	w, c := withdrawal(pluginPod("p"), other, publishedNode("a"))
	if err := w.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if annotations, _ := bare(t, c, "a"); len(annotations) != 1 {
		t.Errorf("annotations %q", annotations)
	}
}

func TestANodeThatCannotBeClearedIsNamedAndTheOthersAreCleared(t *testing.T) {
	w, c := withdrawal(publishedNode("a"), publishedNode("b"))
	c.PrependReactor("patch", "nodes", func(a k8stesting.Action) (bool, runtime.Object, error) {
		return a.(k8stesting.PatchAction).GetName() == "a", nil, errors.New("refused")
	})
	if err := w.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "node a: refused") {
		t.Errorf("got %v", err)
	}
	if annotations, _ := bare(t, c, "b"); len(annotations) != 1 {
		t.Errorf("annotations of the other node %q", annotations)
	}
	if annotations, _ := bare(t, c, "a"); len(annotations) != 5 {
		t.Errorf("a second attempt would not find the node: %q", annotations)
	}
}
