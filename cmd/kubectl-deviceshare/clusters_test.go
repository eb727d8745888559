// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/sharing"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/wire"
	"deviceshare/view/capture"
)

func birth(minutes int) metav1.Time {
	return metav1.NewTime(time.Date(2026, 1, 2, 3, minutes, 0, 0, time.UTC))
}

func quantities(number, memory, cores int64) corev1.ResourceList {
	out := corev1.ResourceList{wire.ResourceNumber: *resource.NewQuantity(number, resource.DecimalSI)}
	if memory > 0 {
		out[wire.ResourceMemory] = *resource.NewQuantity(memory, resource.DecimalSI)
	}
	if cores > 0 {
		out[wire.ResourceCores] = *resource.NewQuantity(cores, resource.DecimalSI)
	}
	return out
}

// device is a card of a node, linked to nothing.
func device(node string, index int, model string, mode sharing.Mode) sharing.Device {
	d := sharingtest.Device(index, model, mode)
	d.ID = sharing.DeviceID(fmt.Sprintf("GPU-%s-%d", node, index))
	d.NUMA, d.PCI = index/2, fmt.Sprintf("0000:%02x:00.0", index+1)
	return d
}

func node(name string, devices ...sharing.Device) *corev1.Node {
	annotations, err := wire.NodeAnnotations(sharing.Inventory{Node: name, Devices: devices}, 1)
	if err != nil {
		panic(err)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Status: corev1.NodeStatus{
			Allocatable: quantities(int64(len(devices)*10), 0, 0),
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// asking is a pod with one container that asks for a share.
func asking(namespace, name, group string, memory, cores int64) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID("uid-" + namespace + "-" + name), CreationTimestamp: birth(5),
			Annotations: map[string]string{wire.GroupName: group},
		},
		Spec: corev1.PodSpec{SchedulerName: "volcano", Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Limits: quantities(1, memory, cores)},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// on puts a pod on a node with a share of a device.
func on(p *corev1.Pod, node string, s sharing.Share) *corev1.Pod {
	annotations, err := wire.PlacementAnnotations(sharing.Placement{
		Node: node, Containers: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{s}}},
	}, 1, 1700000000)
	if err != nil {
		panic(err)
	}
	for key, value := range annotations {
		p.Annotations[key] = value
	}
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
	return p
}

// told is a pod of which the scheduler has said that.
func told(p *corev1.Pod, sentence string) *corev1.Pod {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: sentence}}
	return p
}

func group(namespace, name, queue string, members int32) *schedulingv1beta1.PodGroup {
	return &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       schedulingv1beta1.PodGroupSpec{MinMember: members, Queue: queue},
		Status:     schedulingv1beta1.PodGroupStatus{Phase: schedulingv1beta1.PodGroupInqueue},
	}
}

func queue(name string, quota, used int64) *schedulingv1beta1.Queue {
	return &schedulingv1beta1.Queue{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       schedulingv1beta1.QueueSpec{Weight: 1, Capability: quantities(quota, 0, 0)},
		Status:     schedulingv1beta1.QueueStatus{State: schedulingv1beta1.QueueStateOpen, Allocated: quantities(used, 0, 0)},
	}
}

func stateOf(objects ...any) *capture.State {
	s := &capture.State{Taken: birth(30).Time}
	for _, o := range objects {
		s.Add(o)
	}
	s.Sort()
	return s
}

func part(d sharing.Device, memory int64, cores sharing.Percent) sharing.Share {
	return sharing.Share{Device: d.ID, Mode: d.Mode, Memory: sharing.MiBs(memory), Cores: cores}
}

// small is one node with two cards, full but for one card's rest.
func small() *capture.State {
	a, b := device("node-1", 0, "A100-40", sharing.HAMiCore), device("node-1", 1, "A100-40", sharing.HAMiCore)
	a.Links = []sharing.Link{{Peer: b.ID, Kind: "nvlink"}}
	b.Links = []sharing.Link{{Peer: a.ID, Kind: "nvlink"}}
	waiting := told(asking("default", "train-4", "train-4", 36864, 50), `0/1 nodes are unavailable: 1 node(s) where 0/2 devices fit container "main", `+
		"1 wanted: 2 short of free memory (NotEnoughMemory). What helps: ask for less memory, or wait until pods end.")
	return stateOf(node("node-1", a, b), queue("default", 96, 3),
		group("default", "train-4", "default", 1), group("default", "gang", "default", 4), group("research", "quota", "research", 1), queue("research", 2, 2),
		on(asking("default", "train-1", "x", 10240, 30), "node-1", part(a, 10240, 30)),
		on(asking("default", "train-2", "x", 20480, 50), "node-1", part(a, 20480, 50)),
		on(asking("research", "notebook", "x", 8192, 0), "node-1", part(b, 8192, 0)),
		waiting, told(asking("default", "gang-0", "gang", 1024, 0), "the gang has 1 of the 4 pods it needs to start (minAvailable): it waits until the others are made."),
		told(asking("research", "quota-0", "quota", 1024, 0), `queue "research" uses 2 of 2 volcano.sh/vgpu-number: 1 more is 1 too much.`))
}

// mixed is three nodes: all modes, a broken card, a node whose plugin is gone, an unreadable pod.
func mixed() *capture.State {
	mig, core := device("node-1", 0, "A100-40", sharing.MIG), device("node-1", 1, "A100-40", sharing.HAMiCore)
	mps, slice := device("node-2", 0, "A30", sharing.MPS), device("node-2", 1, "A30", sharing.TimeSlicing)
	slice.Healthy, slice.Reason = false, "Xid 79"
	gone := node("node-3", device("node-3", 0, "T4", sharing.HAMiCore))
	gone.Status.Allocatable = nil
	instance := func(profile string, start, size, position int, memory int64) sharing.Share {
		s := part(mig, memory, 0)
		s.Partition = sharing.Partition{Profile: profile, Start: start, Size: size, Geometry: "group2", Position: position}
		return s
	}
	lost := on(asking("team", "lost", "x", 1024, 0), "node-1", part(core, 1024, 0))
	lost.Annotations[wire.PodPlacement] = "{\x1b[31m"
	gated := asking("team", "gated", "x", 1024, 0)
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
	wrong := asking("team", "wrong", "x", 1024, 0)
	wrong.Annotations[wire.UserMode] = "magic"
	told(wrong, `0/3 nodes are unavailable: 3 node(s) refuse the pod, because its device request cannot be read: `+
		`metadata.annotations[volcano.sh/vgpu-mode]: unknown mode "magic": want one of mig, hami-core, mps, time-slicing.`)
	return stateOf(node("node-1", mig, core), node("node-2", mps, slice), gone, lost, gated, wrong,
		on(asking("team", "infer-1", "x", 9856, 0), "node-1", instance("2g.10gb", 0, 2, 0, 9856)),
		on(asking("team", "infer-2", "x", 9856, 0), "node-1", instance("2g.10gb", 4, 2, 2, 9856)),
		on(asking("team", "mps-1", "x", 4096, 25), "node-2", part(mps, 4096, 25)),
		group("team", "x", "default", 1), told(asking("team", "large", "x", 60000, 0),
			`0/3 nodes are unavailable: 1 node(s) where 0/2 devices fit container "main", 1 wanted: 1 out of service (Unhealthy), 1 short of free memory (NotEnoughMemory), and it would not fit the empty node, `+
				`1 node(s) where 0/2 devices fit container "main", 1 wanted: 2 blocked by a placement that cannot be read (Blocked), `+
				"1 the node offers no volcano.sh/vgpu-number: its device plugin is not running. What helps: delete or repair the pod that has the event DevicePlacementUnreadable."))
}

// large is a cluster of 8 devices a node, with pods spread over them; one in a hundred waits.
func large(nodes, pods int) *capture.State {
	s := &capture.State{Taken: birth(30).Time}
	devices := make([][]sharing.Device, nodes)
	for i := range devices {
		name := fmt.Sprintf("node-%04d", i)
		for k := range 8 {
			devices[i] = append(devices[i], device(name, k, "A100-80", sharing.HAMiCore))
		}
		s.Add(node(name, devices[i]...))
	}
	for i := range pods {
		p := asking("team", fmt.Sprintf("pod-%06d", i), "x", 30000, 20)
		if i%100 > 0 {
			d := devices[i%nodes][i/nodes%8]
			p = on(p, fmt.Sprintf("node-%04d", i%nodes), part(d, 30000, 20))
		}
		s.Add(p)
	}
	s.Sort()
	return s
}
