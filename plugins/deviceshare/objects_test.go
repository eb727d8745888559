// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	clientcache "k8s.io/client-go/tools/cache"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

const schedulerName = "volcano"

// worldBinder binds through the binder of the world's current store.
type worldBinder struct{ w *world }

func (b worldBinder) Bind(client kubernetes.Interface, tasks []*api.TaskInfo) map[api.TaskID]string {
	for _, task := range tasks {
		b.w.pass(task.Name)
	}
	return b.w.store.Binder().Bind(client, tasks)
}

// noObjects stands for an API server without pods and quotas, in sessions without a cache.
type noObjects struct{}

func (noObjects) podsOf(*framework.Session) corelisters.PodLister {
	return corelisters.NewPodLister(clientcache.NewIndexer(clientcache.MetaNamespaceKeyFunc, clientcache.Indexers{}))
}

func (noObjects) quotasOf(*framework.Session) corelisters.ResourceQuotaLister {
	return corelisters.NewResourceQuotaLister(clientcache.NewIndexer(clientcache.MetaNamespaceKeyFunc, clientcache.Indexers{}))
}

func (noObjects) claimsOf(*framework.Session) *claimInformers { return nil }

func ready() *atomic.Bool {
	b := new(atomic.Bool)
	b.Store(true)
	return b
}

// devices returns n healthy devices in mode hami-core.
func devices(node string, n int, memoryMiB int64) sharing.Inventory {
	inv := sharing.Inventory{Node: node}
	for i := range n {
		inv.Devices = append(inv.Devices, sharing.Device{
			ID: sharing.DeviceID(fmt.Sprintf("GPU-%s-%d", node, i)), Index: i, Model: "NVIDIA Test",
			Memory: sharing.MiBs(memoryMiB), Cores: 100, MaxShares: 10, Healthy: true, Mode: sharing.HAMiCore, NUMA: -1,
		})
	}
	return inv
}

// nodeOf is a ready node that publishes the inventory and offers the sums.
func nodeOf(t testing.TB, inv sharing.Inventory) *corev1.Node {
	t.Helper()
	annotations, err := wire.NodeAnnotations(inv, 1)
	if err != nil {
		t.Fatal(err)
	}
	var number, cores int
	var memory sharing.Bytes
	cordons := sharing.Cordons{}
	for _, d := range inv.Devices {
		if d.Cordon != nil {
			cordons[d.ID] = *d.Cordon
		}
		number, cores, memory = number+d.MaxShares, cores+int(d.Cores), memory.Plus(d.Memory)
	}
	if len(cordons) > 0 {
		if annotations[wire.NodeCordon], err = wire.EncodeCordons(cordons); err != nil {
			t.Fatal(err)
		}
	}
	offers := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("64"), corev1.ResourceMemory: resource.MustParse("512Gi"), corev1.ResourcePods: resource.MustParse("250"),
		wire.ResourceNumber: *resource.NewQuantity(int64(number), resource.DecimalSI),
		wire.ResourceMemory: *resource.NewQuantity(memory.WholeMiB(), resource.DecimalSI),
		wire.ResourceCores:  *resource.NewQuantity(int64(cores), resource.DecimalSI),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: inv.Node, Annotations: annotations},
		Status: corev1.NodeStatus{
			Capacity: offers, Allocatable: offers,
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// asks are the amounts of one container; zero is left out.
type asks struct{ number, memory, cores int64 }

func (a asks) list() corev1.ResourceList {
	out := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
	for name, v := range map[corev1.ResourceName]int64{wire.ResourceNumber: a.number, wire.ResourceMemory: a.memory, wire.ResourceCores: a.cores} {
		if v != 0 {
			out[name] = *resource.NewQuantity(v, resource.DecimalSI)
		}
	}
	return out
}

// podOf is a pod of a group with one container for each of the asks.
func podOf(name, group string, containers ...asks) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name),
			Annotations: map[string]string{schedulingv1beta1.KubeGroupNameAnnotationKey: group},
		},
		Spec:   corev1.PodSpec{SchedulerName: schedulerName},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	for i, a := range containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: fmt.Sprintf("c%d", i), Resources: corev1.ResourceRequirements{Limits: a.list(), Requests: a.list()},
		})
	}
	return pod
}

// runningOn makes the pod one that runs on a node with shares of one device.
func runningOn(t testing.TB, pod *corev1.Pod, node string, shares ...sharing.Share) *corev1.Pod {
	t.Helper()
	p := sharing.Placement{Node: node, Containers: []sharing.ContainerShares{{Container: pod.Spec.Containers[0].Name, Shares: shares}}}
	annotations, err := wire.PlacementAnnotations(p, 1, 1600000000)
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range annotations {
		pod.Annotations[k] = v
	}
	return boundTo(pod, node)
}

// boundTo makes the pod one that runs on a node.
func boundTo(pod *corev1.Pod, node string) *corev1.Pod {
	pod.Spec.NodeName = node
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	return pod
}

func share(device sharing.DeviceID, memoryMiB int64) sharing.Share {
	return sharing.Share{Device: device, Mode: sharing.HAMiCore, Memory: sharing.MiBs(memoryMiB)}
}

func groupOf(name string, members int32) *schedulingv1beta1.PodGroup {
	return &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec:       schedulingv1beta1.PodGroupSpec{MinMember: members, Queue: "default"},
		Status:     schedulingv1beta1.PodGroupStatus{Phase: schedulingv1beta1.PodGroupInqueue},
	}
}

// owners returns who holds devices of a node by the last snapshot.
func (w *world) owners(node string) []sharing.Owner {
	w.t.Helper()
	n, ok := w.store.cluster.Nodes()[node]
	if !ok || n.Ledger == nil {
		w.t.Fatalf("no ledger for node %s", node)
	}
	return append([]sharing.Owner{}, n.Ledger.Owners()...)
}

// ledgers returns every placement by node and owner, by the last snapshot.
func (w *world) ledgers() map[string]map[sharing.Owner]sharing.Placement {
	out := map[string]map[sharing.Owner]sharing.Placement{}
	for name, n := range w.store.cluster.Nodes() {
		out[name] = map[sharing.Owner]sharing.Placement{}
		for _, o := range n.Ledger.Owners() {
			out[name][o], _ = n.Ledger.Placement(o)
		}
	}
	return out
}

// tierOff keeps sessions from placing anything: they only follow the snapshot.
func (w *world) tierOff() { w.idle = true }
