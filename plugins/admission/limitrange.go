// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing/podspec/corepod"
)

// LimitRangeKey is the annotation in which the API server notes what it took from a LimitRange. It
// does so before it calls webhooks.
const LimitRangeKey = "kubernetes.io/limit-ranger"

// limitRangeWarnings returns a warning for each container that asks for devices only because a
// LimitRange of its namespace has a default for one of their resources. Whether the container is to
// have them, only its author knows.
func limitRangeWarnings(pod *corev1.Pod, s Settings) []string {
	note := pod.Annotations[LimitRangeKey]
	if note == "" {
		return nil
	}
	var out []string
	for at, c := range askingContainers(pod, s) {
		kind := "container "
		if at.list == "initContainers" {
			kind = "init container "
		}
		var from []string
		own := slices.ContainsFunc(s.Names.Existing(), func(name string) bool {
			amount, _ := (corepod.Container{Container: c}).Amount(name)
			if amount != 0 && setByLimitRange(note, name, kind+c.Name) {
				from = append(from, name)
				return false
			}
			return amount != 0
		})
		if !own && len(from) > 0 {
			out = append(out, fmt.Sprintf("spec.%s[%d] (%s) resources.limits[%s]: comes from a LimitRange of the namespace, not from the pod, "+
				"and makes this a container with a GPU: if it needs none, write %s", at.list, at.index, c.Name, strings.Join(from, ", "), zeroLimits(from)))
		}
	}
	return out
}

// zeroLimits is what a container writes to ask for none of some resources.
func zeroLimits(names []string) string {
	lines := make([]string, 0, len(names))
	for _, name := range names {
		lines = append(lines, name+": 0")
	}
	return strings.Join(lines, ", ")
}

// setByLimitRange reports whether the note says that the container's limit of a resource comes from
// a LimitRange. The note is "LimitRanger plugin set: cpu, memory request for container a; cpu limit
// for container a".
func setByLimitRange(note, resource, container string) bool {
	_, list, _ := strings.Cut(note, ": ")
	for entry := range strings.SplitSeq(list, "; ") {
		for _, kind := range [...]string{" limit for ", " request for "} {
			if names, whose, ok := strings.Cut(entry, kind); ok && whose == container && slices.Contains(strings.Split(names, ", "), resource) {
				return true
			}
		}
	}
	return false
}
