// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing"
	"deviceshare/sharing/request"
)

// Holder is a pod that holds a share of a device: one of its containers was
// prepared, and the pod is not gone.
type Holder struct {
	Owner sharing.Owner
	Pod   string // namespace/name
	Mode  sharing.Mode
}

// Holders returns who holds a share of the device. A pod of which any container
// was prepared holds everything it was given, since its later containers are going
// to start; so does a pod with a container that runs, should its record be lost.
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
		// What cannot be read cannot be told apart; such a pod is named in an event
		// when its next container starts.
		inv, err := k.inventory(k.cfg.Store.Of(owner))
		if err != nil {
			continue
		}
		placement, err := decision(pod, &inv, k.cfg.Terms())
		if err != nil {
			continue
		}
		for i := range placement.Containers {
			for _, s := range placement.Containers[i].Shares {
				if s.Device == id {
					add(Holder{Owner: owner, Pod: pod.Namespace + "/" + pod.Name, Mode: s.Mode})
				}
			}
		}
	}
	return holders
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
