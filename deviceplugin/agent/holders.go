// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

// Holders returns who holds a share of the device.
func (k *Keeper) Holders(id sharing.DeviceID) []node.Holder {
	records := nodeRecords(k.cfg.Store.All())
	var running []node.Running
	for owner := range k.cfg.Pods.Live() {
		pod, live := k.cfg.Pods.Pod(owner)
		recorded := slices.ContainsFunc(records, func(r node.Record) bool { return r.Owner == owner })
		if !live || !decided(pod) || !recorded && !Started(pod, k.cfg.Terms.Terms().Names) {
			continue
		}
		r := node.Running{Owner: owner, Pod: pod.Namespace + "/" + pod.Name}
		placement, err := k.given(pod)
		r.Unreadable = err != nil
		for i := range placement.Containers {
			r.Shares = append(r.Shares, placement.Containers[i].Shares...)
		}
		running = append(running, r)
	}
	return node.HoldersOf(id, records, running)
}

// given is the decision about a pod of which a container has started. Legacy text
// names no mode. For a pod with a record it is that of the record; without one
// another device plugin started the pod, the device may have been given another
// mode since, and the shares are of mode "".
func (k *Keeper) given(pod *corev1.Pod) (sharing.Placement, error) {
	terms, records := k.cfg.Terms.Terms(), k.cfg.Store.Of(sharing.Owner(pod.UID))
	if len(records) > 0 || pod.Annotations[wire.PodPlacement] != "" {
		state, err := k.state()
		if err != nil {
			return sharing.Placement{}, err
		}
		return decision(pod, state.Inventory(), records, terms)
	}
	placement, _, err := wire.ReadPlacement(pod.Annotations, containerRefs(pod, terms.Names), nil, terms.Factor)
	if err != nil {
		return sharing.Placement{}, fmt.Errorf("the scheduler's decision cannot be read: %w", err)
	}
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
