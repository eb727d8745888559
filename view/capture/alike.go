// SPDX-License-Identifier: Apache-2.0

package capture

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
)

// containerCache reads equal texts of containers once. Most pods of a large cluster are made from
// few templates, and their containers would take most of the time and memory. It is for one
// goroutine.
type containerCache struct {
	read    map[string][]corev1.Container
	trimmed map[*corev1.Container][]corev1.Container
	// pod is used again for each pod, since what is kept of one is a copy.
	pod podText
}

// podText is a pod with its containers as text: fields of these names hide those of the API's
// types.
type podText struct {
	corev1.Pod
	Spec specText `json:"spec"`
}

type specText struct {
	corev1.PodSpec
	InitContainers json.RawMessage `json:"initContainers,omitempty"`
	Containers     json.RawMessage `json:"containers,omitempty"`
}

func newContainerCache() *containerCache {
	return &containerCache{read: map[string][]corev1.Container{}, trimmed: map[*corev1.Container][]corev1.Container{}}
}

// readPod reads a pod, which holds until the next one is read.
func (a *containerCache) readPod(text []byte) (*corev1.Pod, error) {
	a.pod = podText{}
	if err := json.Unmarshal(text, &a.pod); err != nil {
		return nil, err
	}
	p := &a.pod.Pod
	p.Spec = a.pod.Spec.PodSpec
	var err error
	if p.Spec.InitContainers, err = a.readContainers(a.pod.Spec.InitContainers); err != nil {
		return nil, err
	}
	p.Spec.Containers, err = a.readContainers(a.pod.Spec.Containers)
	return p, err
}

func (a *containerCache) readContainers(text json.RawMessage) ([]corev1.Container, error) {
	list, known := a.read[string(text)]
	if known || text == nil {
		return list, nil
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	a.read[string(text)] = list
	return list, nil
}

// trimCached is trimContainers. Lists that were read as one stay one.
func (a *containerCache) trimCached(list []corev1.Container) []corev1.Container {
	if a == nil || len(list) == 0 {
		return trimContainers(list)
	}
	kept, known := a.trimmed[&list[0]]
	if !known {
		kept = trimContainers(list)
		a.trimmed[&list[0]] = kept
	}
	return kept
}
