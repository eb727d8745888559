// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Outcome is how a pod ended, and whether that is as it should be.
type Outcome struct {
	Kind string // to be counted
	// Wrong says what is wrong with it; empty if nothing is.
	Wrong string
}

// unmet is how the CUDA client ends when a step did not end as expected.
const unmet = 3

// judge says how a pod ended. lost is a device that was taken from its programs.
func judge(p *corev1.Pod, lost string) Outcome {
	if p.Status.Phase == corev1.PodSucceeded {
		return Outcome{Kind: "pods succeeded"}
	}
	started, forgotten := false, false
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		started = started || s.State.Terminated != nil || s.State.Running != nil
		forgotten = forgotten || s.State.Terminated != nil && s.State.Terminated.Reason == "Unknown" && s.State.Terminated.ExitCode == 255
	}
	if forgotten {
		// So containerd reports a container that it was starting when it was killed.
		return Outcome{Kind: "pods failed that containerd was starting when it was killed"}
	}
	if !started && strings.Contains(p.Status.Reason, "AdmissionError") {
		return Outcome{Kind: "pods refused by the kubelet: " + p.Status.Reason}
	}
	if lost != "" && strings.Contains(p.Annotations[placementKey], lost) {
		return Outcome{Kind: "pods failed on the lost device"}
	}
	return Outcome{Kind: "pods failed", Wrong: fmt.Sprintf("pod %s/%s failed: %s %s%s",
		p.Namespace, p.Name, p.Status.Reason, p.Status.Message, endings(p))}
}

// endings tells how the containers of a pod ended.
func endings(p *corev1.Pod) string {
	var out strings.Builder
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		end := s.State.Terminated
		if end == nil || end.ExitCode == 0 {
			continue
		}
		fmt.Fprintf(&out, "; container %s: %s, exit code %d", s.Name, end.Reason, end.ExitCode)
		if end.ExitCode == unmet {
			out.WriteString(" (it got what it should not get, or did not get what it should)")
		}
	}
	return out.String()
}
