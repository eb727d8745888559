// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/request"
)

// ApartRules keep pods on different devices: two pods that one of them names never share one.
type ApartRules []sharing.Avoidance

// addTo gives what is said of a pod the rules that name it. It changes what it is given, and no
// value that others have.
func (r ApartRules) addTo(n *sharing.Neighbours) {
	for i := range r {
		if r[i].Pods.Matches(n.Labels) {
			n.Avoids = append(n.Avoids[:len(n.Avoids):len(n.Avoids)], r[i])
		}
	}
}

// NeighboursOf reads what counts between a pod that holds devices and others, as it is now: labels,
// annotations and rules may be newer than its placement. With an error, the pod accepts no other.
func (s *Settings) NeighboursOf(pod *corev1.Pod) (*sharing.Neighbours, error) {
	n, mistakes := request.Neighbours(&podspec.Pod{Annotations: pod.Annotations, Labels: pod.Labels})
	s.Apart.addTo(n)
	if len(mistakes) == 0 {
		return n, nil
	}
	return n, errors.New(strings.Join(request.Texts(mistakes), "; "))
}
