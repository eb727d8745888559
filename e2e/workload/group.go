// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupKey is the annotation that names a pod's group.
const GroupKey = "scheduling.k8s.io/group-name"

// PodGroups is the resource of Volcano's pod groups.
func PodGroups() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "scheduling.volcano.sh", Version: "v1beta1", Resource: "podgroups"}
}

// Group is a pod group whose pods start only when so many of them can.
func Group(name string, members int) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": PodGroups().GroupVersion().String(), "kind": "PodGroup",
		"metadata": map[string]any{"name": name},
		"spec":     map[string]any{"minMember": int64(members), "queue": "default"},
	}}
}
