// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/deviceplugin/discovery"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/sharing"
	"deviceshare/sharing/nodeapi"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

// Terms is what the administrator set that concerns single containers.
type Terms struct {
	Names request.Names
	// PriorityName is the resource that carries the task priority; "" if there
	// is none.
	PriorityName string
	// Factor is the unit of memory amounts in today's annotations, in MiB.
	Factor int64
	// Policy is when compute limits apply: "", "default", "force" or "disable".
	Policy string
	// Interception is how libvgpu.so behaves in containers.
	Interception nodeapi.Interception
}

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

// decision reads what the scheduler decided for the pod.
func decision(pod *corev1.Pod, inv *sharing.Inventory, t Terms) (sharing.Placement, error) {
	placement, found, err := wire.ReadPlacement(pod.Annotations, containerRefs(pod, t.Names), inv, t.Factor)
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

// claim translates the scheduler's decision about one container into what a
// preparer needs. Whatever does not agree with the kubelet or with this node is
// an error that says what to do.
func claim(pod *corev1.Pod, c kubelet.Container, slots []string, placement *sharing.Placement, inv *sharing.Inventory, t Terms) (nodeapi.Claim, error) {
	shares, ok := placement.Container(c.Name)
	if !ok {
		return nodeapi.Claim{}, fmt.Errorf("the scheduler gave container %s nothing, the kubelet %d slots", c.Name, len(slots))
	}
	if len(shares.Shares) != len(slots) {
		return nodeapi.Claim{}, fmt.Errorf("the scheduler gave container %s %d devices, the kubelet %d slots", c.Name, len(shares.Shares), len(slots))
	}
	out := nodeapi.Claim{
		ID: c.ID, Owner: sharing.Owner(pod.UID), Namespace: pod.Namespace, Pod: pod.Name, Container: c.Name,
		Priority: priority(pod, c.Name, t.PriorityName), Policy: t.Policy,
		Kind: shares.Kind, Order: order(pod, c.Name), User: user(pod, c.Name),
		Interception: t.Interception,
	}
	var err error
	if out.Devices, err = claimed(shares.Shares, inv); err != nil {
		return nodeapi.Claim{}, fmt.Errorf("container %s: %w", c.Name, err)
	}
	return out, nil
}

// claimed pairs shares with the devices of this node, in PCI order.
func claimed(shares []sharing.Share, inv *sharing.Inventory) ([]nodeapi.ClaimedDevice, error) {
	devices := make([]sharing.Device, 0, len(shares))
	for _, s := range shares {
		d, ok := inv.Device(s.Device)
		switch {
		case !ok:
			return nil, fmt.Errorf("device %s is not on this node, or is hidden by its configuration", s.Device)
		case s.Mode != shares[0].Mode:
			return nil, fmt.Errorf("it has shares of modes %s and %s; one container is served in one mode", shares[0].Mode, s.Mode)
		}
		devices = append(devices, *d)
	}
	out := make([]nodeapi.ClaimedDevice, 0, len(shares))
	for _, i := range discovery.ByPCI(devices) {
		out = append(out, nodeapi.ClaimedDevice{Device: devices[i], Share: shares[i]})
	}
	return out, nil
}

// order is a container's place in the pod's spec, init containers first.
func order(pod *corev1.Pod, container string) int {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	return slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == container })
}

// priority is the task priority of a container: 1 unless its resource says 0.
func priority(pod *corev1.Pod, container, name string) int {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for i := range all {
		if all[i].Name != container {
			continue
		}
		if amount, ok := (corepod.Container{Container: &all[i]}).Amount(name); ok && amount == 0 {
			return 0
		}
	}
	return 1
}

// user is the user id a container runs as, nil when its image decides.
func user(pod *corev1.Pod, container string) *int64 {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for i := range all {
		if s := all[i].SecurityContext; all[i].Name == container && s != nil && s.RunAsUser != nil {
			return s.RunAsUser
		}
	}
	if s := pod.Spec.SecurityContext; s != nil {
		return s.RunAsUser
	}
	return nil
}
