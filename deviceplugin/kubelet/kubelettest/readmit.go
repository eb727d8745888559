// SPDX-License-Identifier: Apache-2.0

package kubelettest

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Readmit answers for a pod that is bound to the node when the kubelet starts, as its device
// manager does (Kubernetes 1.34, devicesToAllocate in pkg/kubelet/cm/devicemanager/manager.go): an
// error fails the pod for good. runs reports which containers the container runtime shows as
// running; after a reboot there is none.
func (k *Kubelet) Readmit(pod *corev1.Pod, runs func(container string) bool) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for name, q := range c.Resources.Limits {
			i := slices.IndexFunc(k.entries, func(e entry) bool {
				return e.PodUID == string(pod.UID) && e.ContainerName == c.Name && e.ResourceName == string(name)
			})
			if i < 0 || runs(c.Name) {
				continue
			}
			held := k.entries[i].slots()
			if needed := int(q.Value()) - len(held); needed != 0 {
				return fmt.Errorf("pod %q container %q changed request for resource %q", pod.UID, c.Name, name)
			}
			if err := k.areHealthy(held, string(name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// areHealthy is the device manager's look at slots that a container was given before. The caller
// holds the lock.
func (k *Kubelet) areHealthy(held []string, resource string) error {
	if k.healthy == nil || k.resource != resource {
		return fmt.Errorf("cannot allocate unregistered device %s", resource)
	}
	healthy := 0
	for _, is := range k.healthy {
		if is {
			healthy++
		}
	}
	if healthy == 0 {
		return errors.New("no healthy devices present; cannot allocate unhealthy devices " + resource)
	}
	for _, slot := range held {
		if !k.healthy[slot] {
			return fmt.Errorf("previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s: %s", resource, slot)
		}
	}
	return nil
}

// Holds is how many slots are given away.
func (k *Kubelet) Holds() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	slots := map[string]bool{}
	for i := range k.entries {
		for _, s := range k.entries[i].slots() {
			slots[s] = true
		}
	}
	return len(slots)
}
