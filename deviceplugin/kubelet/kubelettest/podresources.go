// SPDX-License-Identifier: Apache-2.0

package kubelettest

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Get implements the podresources service: sidecars and app containers of one pod.
func (k *Kubelet) Get(_ context.Context, r *podresources.GetPodResourcesRequest) (*podresources.GetPodResourcesResponse, error) {
	if k.OldKubelet {
		return nil, errors.New("PodResources API Get method disabled")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, pod := range k.pods {
		if pod.Namespace == r.GetPodNamespace() && pod.Name == r.GetPodName() {
			return &podresources.GetPodResourcesResponse{PodResources: k.resourcesOf(pod)}, nil
		}
	}
	return nil, fmt.Errorf("pod %s in namespace %s not found", r.GetPodName(), r.GetPodNamespace())
}

// List implements the podresources service.
func (k *Kubelet) List(context.Context, *podresources.ListPodResourcesRequest) (*podresources.ListPodResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	answer := &podresources.ListPodResourcesResponse{}
	for _, pod := range k.pods {
		answer.PodResources = append(answer.PodResources, k.resourcesOf(pod))
	}
	return answer, nil
}

// Offer has another device plugin offer names as a resource; without any it leaves.
func (k *Kubelet) Offer(resource string, ids ...string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.others == nil {
		k.others = map[string][]string{}
	}
	k.others[resource] = ids
}

// GetAllocatableResources implements the podresources service: what is healthy of all device
// plugins, each name in an entry of its own, as the real one lists devices of several NUMA nodes.
func (k *Kubelet) GetAllocatableResources(context.Context, *podresources.AllocatableResourcesRequest) (*podresources.AllocatableResourcesResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	answer := &podresources.AllocatableResourcesResponse{}
	add := func(resource, id string) {
		answer.Devices = append(answer.Devices, &podresources.ContainerDevices{ResourceName: resource, DeviceIds: []string{id}})
	}
	for id, healthy := range k.healthy {
		if healthy {
			add(k.resource, id)
		}
	}
	for resource, ids := range k.others {
		for _, id := range ids {
			add(resource, id)
		}
	}
	return answer, nil
}

// resourcesOf leaves out init containers that end, as the real one does.
func (k *Kubelet) resourcesOf(pod *corev1.Pod) *podresources.PodResources {
	out := &podresources.PodResources{Name: pod.Name, Namespace: pod.Namespace}
	add := func(c *corev1.Container) {
		one := &podresources.ContainerResources{Name: c.Name}
		for _, e := range k.entries {
			if e.PodUID == string(pod.UID) && e.ContainerName == c.Name {
				one.Devices = append(one.Devices, &podresources.ContainerDevices{ResourceName: e.ResourceName, DeviceIds: e.slots()})
			}
		}
		out.Containers = append(out.Containers, one)
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil {
			add(c)
		}
	}
	for i := range pod.Spec.Containers {
		add(&pod.Spec.Containers[i])
	}
	return out
}
