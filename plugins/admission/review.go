// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/plugins/podspec"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
)

// Verdict is what is to be said about a pod. Mistakes refuse it; warnings are
// shown to whoever creates it and change nothing.
type Verdict struct {
	Mistakes []request.Mistake
	Warnings []string
}

// Refused reports whether the pod must not be created.
func (v Verdict) Refused() bool { return len(v.Mistakes) > 0 }

// Message is the refusal as a person reads it: one mistake per line.
func (v Verdict) Message() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the pod asks for GPU shares with %d mistake", len(v.Mistakes))
	if len(v.Mistakes) > 1 {
		b.WriteByte('s')
	}
	b.WriteByte(':')
	for _, m := range v.Mistakes {
		b.WriteString("\n  ")
		b.WriteString(m.String())
	}
	return b.String()
}

// Review judges a pod. A pod that asks for none of our resources is never
// refused. The pod is not changed.
func Review(pod *corev1.Pod, s Settings) Verdict {
	if !handled(pod, s) {
		return Verdict{}
	}
	read := podspec.Read(pod)
	_, mistakes := request.Read(&read, s.Names, s.MemoryFactor, s.reading()...)
	if pod.Spec.NodeName != "" {
		mistakes = append(mistakes, request.Mistake{Path: "spec.nodeName", Message: "a pod that names its node is never seen by the scheduler, " +
			"so no device is chosen for it: use nodeSelector with kubernetes.io/hostname: " + pod.Spec.NodeName})
	}
	return Verdict{Mistakes: mistakes, Warnings: warnings(pod, s)}
}

// warnings names what is legal and probably not meant.
func warnings(pod *corev1.Pod, s Settings) []string {
	var out []string
	if name := pod.Spec.SchedulerName; !slices.Contains(s.Schedulers, name) {
		out = append(out, fmt.Sprintf("spec.schedulerName is %q: GPU shares are given by %s only; "+
			"with another scheduler the containers wait for a placement that nobody makes",
			name, strings.Join(s.Schedulers, ", ")))
	}
	var stale []string
	for _, key := range placementKeys() {
		if _, ok := pod.Annotations[key]; ok {
			stale = append(stale, key)
		}
	}
	if len(stale) > 0 {
		out = append(out, fmt.Sprintf("metadata.annotations: %s: written by the scheduler, "+
			"so probably copied from another pod; what stands there is overwritten", strings.Join(stale, ", ")))
	}
	return out
}

// placementKeys are the annotations that only a scheduler writes.
func placementKeys() []string {
	return []string{wire.PodPlacement, wire.PodNode, wire.PodAssigned, wire.PodToAllocate}
}
