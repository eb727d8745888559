// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/node"
	"deviceshare/deviceplugin/settings"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

// containerRefs lists the pod's containers for the reader of placements. The number
// of devices is left out: claim compares it with the slots that the kubelet gave,
// and says so.
func containerRefs(pod *corev1.Pod, names podspec.Names) []wire.ContainerRef {
	refs := corepod.Refs(pod, names)
	for i := range refs {
		refs[i].Count = 0
	}
	return refs
}

func hasPlacement(pod *corev1.Pod) bool {
	return pod.Annotations[wire.PodPlacement] != "" || pod.Annotations[wire.PodAssigned] != ""
}

// readPlacement reads what the scheduler decided for the pod. records are those of the pod:
// one that has begun is in the mode that they name.
func readPlacement(pod *corev1.Pod, inv sharing.Inventory, records []checkpoint.Record, t settings.Terms) (placement sharing.Placement, err error) {
	found, refs := false, containerRefs(pod, t.Names)
	if len(records) > 0 {
		placement, found, err = wire.ReadBegun(pod.Annotations, refs, &inv, records[0].Mode, t.Factor)
	} else {
		placement, found, err = wire.ReadPlacement(pod.Annotations, refs, &inv, t.Factor)
	}
	switch {
	case err != nil:
		return placement, fmt.Errorf("the scheduler's decision cannot be read: %w", err)
	case !found:
		return placement, fmt.Errorf("no scheduler gave the pod devices (no annotation %s): set spec.schedulerName to the scheduler that runs deviceshare, it is %q",
			wire.PodPlacement, pod.Spec.SchedulerName)
	case placement.Node != inv.Node:
		return placement, fmt.Errorf("the scheduler's decision is for node %s, this is %s", placement.Node, inv.Node)
	}
	return placement, nil
}

// heldPlacement is what the pod holds, see node.Held, and the container of which its annotations
// say something else than what it got, if there is one. With an error, which is about the
// annotations, it is what is recorded.
func heldPlacement(pod *corev1.Pod, inv sharing.Inventory, records []checkpoint.Record, t settings.Terms) (p sharing.Placement, edited string, err error) {
	decided, err := readPlacement(pod, inv, records, t)
	if err != nil {
		decided = sharing.Placement{Node: inv.Node, GeometryHash: inv.GeometryHash}
	}
	refs := containerRefs(pod, t.Names)
	var order []string
	var done []sharing.ContainerShares
	for _, ref := range refs {
		order = append(order, ref.Name)
		if r := recordOf(records, ref.Name); r != nil {
			done = append(done, sharing.ContainerShares{Container: ref.Name, Kind: ref.Kind, Shares: r.Shares()})
		}
	}
	p, edited = node.Held(decided, done, order)
	p.Namespace = pod.Namespace
	return p, edited, err
}

// recordOf is that of a container among the records of its pod; nil if it was not prepared before.
func recordOf(records []checkpoint.Record, container string) *checkpoint.Record {
	for i := range records {
		if records[i].Container == container {
			return &records[i]
		}
	}
	return nil
}

// readRequests is what the pod's containers ask for; nil if that cannot be read. Where they do not
// say, any amount is asked: the defaults may have changed since the scheduler gave theirs.
func readRequests(pod *corev1.Pod, t settings.Terms) []sharing.Request {
	neutral := corepod.Read(pod)
	asked, _ := request.Rules{Names: t.Names, Factor: t.Factor}.ReadContainers(&neutral)
	return asked
}

// newClaim is what a preparer needs to know of an admitted container.
func newClaim(pod *corev1.Pod, c kubelet.Container, admitted *node.Claim, t settings.Terms) modes.Claim {
	return modes.Claim{
		ID: c.ID, Owner: sharing.Owner(pod.UID), Namespace: pod.Namespace, Pod: pod.Name, Container: c.Name,
		Priority: taskPriority(pod, c.Name, t.PriorityName), Policy: t.Policy,
		Kind: admitted.Kind, Order: containerIndex(pod, c.Name), User: containerUser(pod, c.Name), SharedMemory: sharedMemory(pod, c.Name),
		Devices: admitted.Devices, Interception: t.Interception,
	}
}

// containerIndex is a container's place in the pod's spec, init containers first.
func containerIndex(pod *corev1.Pod, container string) int {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	return slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == container })
}

// containerOf is the container of a pod with a name, init container or not; nil if there is none.
func containerOf(pod *corev1.Pod, name string) *corev1.Container {
	for c := range corepod.Containers(pod) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// taskPriority is the task priority of a container: 1 unless its resource says 0.
func taskPriority(pod *corev1.Pod, container, name string) int {
	if c := containerOf(pod, container); c != nil {
		if amount, ok := (corepod.Container{Container: c}).Amount(name); ok && amount == 0 {
			return 0
		}
	}
	return 1
}

// containerUser is the user id a container runs as, nil when its image decides.
func containerUser(pod *corev1.Pod, container string) *int64 {
	if c := containerOf(pod, container); c != nil {
		if u := corepod.User(pod, c); u.Known {
			return &u.ID
		}
	}
	return nil
}
