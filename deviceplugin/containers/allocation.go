// SPDX-License-Identifier: Apache-2.0

package containers

import (
	corev1 "k8s.io/api/core/v1"

	"deviceshare/deviceplugin/cdi"
	"deviceshare/sharing/wire"
)

// hasPlacement reports whether a scheduler left a decision on the pod.
func hasPlacement(pod *corev1.Pod) bool {
	return pod.Annotations[wire.PodPlacement] != "" || pod.Annotations[wire.PodAssigned] != ""
}

// allocationOf returns the one allocation id among CDI names; false if there is none.
func allocationOf(names []string) (id string, ok bool) {
	for _, name := range names {
		if id, ok = cdi.ID(name); ok {
			return id, true
		}
	}
	return "", false
}
