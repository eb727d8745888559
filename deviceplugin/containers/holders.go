// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

// Holders returns who holds a share of the device.
func (m *Manager) Holders(id sharing.DeviceID) []node.Holder {
	return node.HoldersOf(id, nodeRecords(m.cfg.Store.All()), m.runningPods())
}

// runningPods are the live pods that have shares of this node's devices: those of which a container
// was prepared, and those of which one has run.
func (m *Manager) runningPods() []node.Running {
	records, names := m.cfg.Store.ByOwner(), m.cfg.Terms.Terms().Names
	var all []node.Running
	for owner := range m.cfg.Pods.Live() {
		pod, live := m.cfg.Pods.Pod(owner)
		if !live || len(records[owner]) == 0 && !(hasPlacement(pod) && Started(pod, names)) {
			continue
		}
		r := node.Running{Owner: owner, Pod: pod.Namespace + "/" + pod.Name}
		var err error
		r.Placement, err = m.placementOf(pod, records[owner])
		r.Unreadable = err != nil
		all = append(all, r)
	}
	return all
}

// placementOf is what a pod holds of which a container has started. Legacy text
// names no mode. For a pod with a record it is that of the record; without one
// another device plugin started the pod, the device may have been given another
// mode since, and the shares are of mode "". With an error it is what is recorded.
func (m *Manager) placementOf(pod *corev1.Pod, records []checkpoint.Record) (sharing.Placement, error) {
	terms := m.cfg.Terms.Terms()
	if len(records) > 0 || pod.Annotations[wire.PodPlacement] != "" {
		state, err := m.scannedState()
		if err != nil {
			return sharing.Placement{}, err
		}
		placement, _, err := heldPlacement(pod, state.Inventory(), records, terms)
		return placement, err
	}
	placement, _, err := wire.ReadPlacement(pod.Annotations, containerRefs(pod, terms.Names), nil, terms.Factor)
	if err != nil {
		return sharing.Placement{}, fmt.Errorf("the scheduler's decision cannot be read: %w", err)
	}
	placement.Namespace = pod.Namespace
	for i := range placement.Containers {
		for j := range placement.Containers[i].Shares {
			placement.Containers[i].Shares[j].Mode = ""
		}
	}
	return placement, nil
}

// Started reports whether any container of the pod that asks for devices has ever
// run. What ran before it, such as an init container without devices, has no share
// of anything.
func Started(pod *corev1.Pod, names podspec.Names) bool {
	asking := map[string]bool{}
	for _, ref := range containerRefs(pod, names) {
		asking[ref.Name] = ref.Asks
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			s := &list[i]
			ran := s.RestartCount > 0 || s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil
			if asking[s.Name] && ran {
				return true
			}
		}
	}
	return false
}
