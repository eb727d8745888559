// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

// Holder is a pod that holds a share of a device: one of its containers was
// prepared, and the pod is not gone.
type Holder struct {
	Owner sharing.Owner
	Pod   string // namespace/name
	// Mode is the mode it was prepared in; "" when nobody wrote it down.
	Mode sharing.Mode
}

// Holders returns who holds a share of the device. A pod of which any container
// was prepared holds everything it was given, since its later containers are going
// to start; so does a pod with a container that runs, should its record be lost, or
// should another device plugin have started it.
func (k *Keeper) Holders(id sharing.DeviceID) []Holder {
	var holders []Holder
	add := func(h Holder) {
		for _, x := range holders {
			if x.Owner == h.Owner && x.Mode == h.Mode {
				return
			}
		}
		holders = append(holders, h)
	}
	begun := map[sharing.Owner]bool{}
	for _, r := range k.cfg.Store.All() {
		begun[r.Owner] = true
		for _, d := range r.Devices {
			if d.Device == id {
				add(Holder{Owner: r.Owner, Pod: r.Namespace + "/" + r.Pod, Mode: r.Mode})
			}
		}
	}
	for owner := range k.cfg.Pods.Live() {
		pod, live := k.cfg.Pods.Pod(owner)
		if !live || !decided(pod) || !begun[owner] && !Started(pod, k.cfg.Terms().Names) {
			continue
		}
		h := Holder{Owner: owner, Pod: pod.Namespace + "/" + pod.Name}
		placement, err := k.given(pod)
		if err != nil && !begun[owner] {
			add(h) // it runs on some device, and may do so on this one
		}
		for i := range placement.Containers {
			for _, s := range placement.Containers[i].Shares {
				if s.Device == id {
					add(Holder{Owner: h.Owner, Pod: h.Pod, Mode: s.Mode})
				}
			}
		}
	}
	return holders
}

// given is the decision about a pod of which a container has started. Today's text
// names no mode. For a pod with a record it is that of the record; without one
// another device plugin started the pod, the device may have been given another
// mode since, and the shares are of mode "".
func (k *Keeper) given(pod *corev1.Pod) (sharing.Placement, error) {
	terms, records := k.cfg.Terms(), k.cfg.Store.Of(sharing.Owner(pod.UID))
	if len(records) > 0 || pod.Annotations[wire.PodPlacement] != "" {
		inv, err := k.inventory(records)
		if err != nil {
			return sharing.Placement{}, err
		}
		return decision(pod, &inv, terms)
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
func Started(pod *corev1.Pod, names request.Names) bool {
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
