// SPDX-License-Identifier: Apache-2.0

package scale

import (
	"context"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/e2e/workload"
	"deviceshare/sharing/wire"
)

// RoomCase is pods that want room. All devices are in use by pods of queue lenders with one device
// each, and the pods are of queue borrowers.
type RoomCase struct {
	Name string
	// KAI is what its authors publish for the case, on dedicated machines: its
	// docs/scale-tests/example-results.json of 2026-07-03.
	KAI string
	// Pods is how many want room, in gangs of so many pods, with so many whole devices each.
	Pods, gang, devices int
	// repeated is how often the case is repeated, one after the other; 0 counts as once.
	repeated int
	// movable are pods that may move; then these fill the nodes, and nobody leaves for good.
	movable movable
	// spared is on how many nodes no pod may be evicted.
	spared int
	// refused is what the pods are told that get no room.
	refused string
}

// movable is so many sets of pods for each node, on different nodes, whose pods have so many
// devices each. No set can spare one of its pods.
type movable struct{ pods, devices int }

// RoomCases are those of KAI's tests at scale, test/e2e/scale/kwok_test.go at d5bc503a, which are
// for 500 nodes.
func RoomCases(nodes int) []RoomCase {
	all := nodes * devicesPerNode
	return []RoomCase{
		{Name: "one device, five times", KAI: "13.9 s", Pods: 1, gang: 1, devices: 1, repeated: 5},
		{Name: fmt.Sprintf("no room for the last of 10 pods of %d devices", devicesPerNode), KAI: "249.5 s", Pods: 10, gang: 10, devices: devicesPerNode,
			spared: nodes - 9, refused: "there would be room for 9 of 10 pods"},
		{Name: fmt.Sprintf("a job of %d pods of %d devices", nodes/2, devicesPerNode), KAI: "102 s", Pods: nodes / 2, gang: nodes / 2, devices: devicesPerNode},
		{Name: fmt.Sprintf("a job of %d pods of %d devices", nodes, devicesPerNode), KAI: "85 s", Pods: nodes, gang: nodes, devices: devicesPerNode},
		{Name: fmt.Sprintf("%d gangs of 10 pods of %d devices", nodes/10, devicesPerNode), KAI: "11 min 57 s", Pods: nodes, gang: 10, devices: devicesPerNode},
		{Name: fmt.Sprintf("%d pods of one device", all), KAI: "11 min 34 s", Pods: all, gang: 1, devices: 1},
		{Name: fmt.Sprintf("moves for %d gangs of 10 pods of %d devices", 41*nodes/500, devicesPerNode), KAI: "7 min 36 s", Pods: 41 * nodes / 500 * 10, gang: 10, devices: devicesPerNode, movable: movable{pods: 1, devices: 1}},
		{Name: fmt.Sprintf("moves for a pod of %d devices, each node under two movable gangs", devicesPerNode), KAI: "-", Pods: 1, gang: 1, devices: devicesPerNode,
			movable: movable{pods: 2, devices: 2}},
	}
}

func (r *RoomCase) turns() int { return max(1, r.repeated) }

// The queues.
const (
	lenders   = "lenders"
	borrowers = "borrowers"
	queueKey  = "scheduling.volcano.sh/queue-name"
)

func queues() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "scheduling.volcano.sh", Version: "v1beta1", Resource: "queues"}
}

// createQueues makes the two queues. All devices are the borrowers' own.
func (c *clients) createQueues(ctx context.Context, nodes int) error {
	for name, devices := range map[string]int{lenders: 0, borrowers: nodes * devicesPerNode} {
		q := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": queues().GroupVersion().String(), "kind": "Queue", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"weight": int64(1), "reclaimable": true, "deserved": map[string]any{
				wire.ResourceNumber: int64(devices), wire.ResourceMemory: int64(devices * deviceMemory), wire.ResourceCores: int64(devices * 100),
			}},
		}}
		if _, err := c.objects.Resource(queues()).Create(ctx, q, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create queue %s: %w", name, err)
		}
	}
	return nil
}

func (c *clients) deleteQueues(ctx context.Context) error {
	for _, name := range []string{lenders, borrowers} {
		if err := c.objects.Resource(queues()).Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			return fmt.Errorf("delete queue %s: %w", name, err)
		}
	}
	return nil
}

// wholeDevices is a pod of so many whole devices.
func wholeDevices(devices int) corev1.PodSpec {
	spec := withDevices.spec()
	amounts := maps.Clone(spec.Containers[0].Resources.Limits)
	delete(amounts, wire.ResourceMemory)
	delete(amounts, wire.ResourceCores)
	amounts[wire.ResourceNumber] = *resource.NewQuantity(int64(devices), resource.DecimalSI)
	spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: amounts, Requests: amounts}
	return spec
}

// createLenders makes so many pods of one device. They fill nodes one after the other.
func (c *clients) createLenders(ctx context.Context, name string, n int, mayLeave bool) error {
	annotations := map[string]string{queueKey: lenders, wire.UserPolicy: "binpack", schedulingv1beta1.PodPreemptable: fmt.Sprint(mayLeave)}
	return c.createPods(ctx, name, n, wholeDevices(1), annotations)
}

// createMovable fills so many nodes with sets of as many pods as a node has, each on another node,
// that may move.
func (c *clients) createMovable(ctx context.Context, nodes int, m movable) error {
	size, spec := int32(m.pods), wholeDevices(m.devices)
	spec.RestartPolicy = corev1.RestartPolicyAlways
	return inParallel(nodes, func(i int) error {
		name := fmt.Sprint("fill-", i)
		labels := map[string]string{"set": name}
		apart := spec.DeepCopy()
		apart.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{LabelSelector: &metav1.LabelSelector{MatchLabels: labels}, TopologyKey: corev1.LabelHostname},
		}}}
		meta := metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{
			queueKey: lenders, wire.UserMayMove: wire.MayMove, wire.UserPolicy: "spread", schedulingv1beta1.VolcanoGroupMinMemberAnnotationKey: fmt.Sprint(m.pods)}}
		set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: appsv1.ReplicaSetSpec{
			Replicas: &size, Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: meta, Spec: *apart},
		}}
		if _, err := c.pods.AppsV1().ReplicaSets(namespace).Create(ctx, set, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create set %s: %w", name, err)
		}
		return nil
	})
}

// createWishes makes the pods that want room, in their gangs.
func (c *clients) createWishes(ctx context.Context, r RoomCase, prefix string) error {
	spec := wholeDevices(r.devices)
	if r.gang == 1 {
		return c.createPods(ctx, prefix+"0", r.Pods, spec, map[string]string{queueKey: borrowers})
	}
	for i := range r.Pods / r.gang {
		name := fmt.Sprint(prefix, i)
		group := workload.Group(name, r.gang)
		group.Object["spec"].(map[string]any)["queue"] = borrowers
		if _, err := c.objects.Resource(workload.PodGroups()).Namespace(namespace).Create(ctx, group, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create group %s: %w", name, err)
		}
		if err := c.createPods(ctx, name, r.gang, spec, map[string]string{workload.GroupKey: name}); err != nil {
			return err
		}
	}
	return nil
}
