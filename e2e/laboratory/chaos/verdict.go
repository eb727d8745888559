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

// Judge says how a pod ended. lost is a device that was taken from its programs.
func Judge(p *corev1.Pod, lost string) Outcome {
	if p.Status.Phase == corev1.PodSucceeded {
		return Outcome{Kind: "pods succeeded"}
	}
	containers := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	if slices.ContainsFunc(containers, isForgotten) {
		return Outcome{Kind: "pods failed that containerd was starting when it was killed"}
	}
	if slices.ContainsFunc(containers, isCut) {
		return Outcome{Kind: "pods failed that the kubelet was starting when it was killed"}
	}
	if strings.Contains(p.Status.Reason, "AdmissionError") && !allBegan(p) {
		return Outcome{Kind: "pods refused by the kubelet: " + p.Status.Reason}
	}
	if lost != "" && strings.Contains(p.Annotations[placementKey], lost) {
		return Outcome{Kind: "pods failed on the lost device"}
	}
	return Outcome{Kind: "pods failed", Wrong: fmt.Sprintf("pod %s/%s failed: %s %s%s",
		p.Namespace, p.Name, p.Status.Reason, p.Status.Message, endings(p))}
}

// isForgotten recognises how containerd reports a container that it was starting when it was
// killed.
func isForgotten(s corev1.ContainerStatus) bool {
	return s.State.Terminated != nil && s.State.Terminated.Reason == "Unknown" && s.State.Terminated.ExitCode == 255
}

// isCut recognises a container whose start containerd gave up because the kubelet that wanted it
// was killed.
func isCut(s corev1.ContainerStatus) bool {
	end := s.State.Terminated
	return end != nil && end.Reason == "StartError" && strings.Contains(end.Message, "context canceled")
}

// allBegan reports whether every container of a pod has run, those before it aside. A kubelet that
// was killed admits its pods again, and refuses one that has a container which never ran and whose
// devices fail or are unknown at that moment, whatever its other containers do. That a container
// has an ID is no proof: containerd may have been killed between its creation and its start.
// Whether a pod that ran was refused is seen at the residents.
func allBegan(p *corev1.Pod) bool {
	began := func(s corev1.ContainerStatus) bool {
		ended := s.State.Terminated != nil && s.State.Terminated.Reason != "ContainerStatusUnknown"
		return s.State.Running != nil || ended
	}
	return len(p.Status.ContainerStatuses) > 0 && !slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return !began(s) })
}

// isUnmet reports whether a step of a pod did not end as expected.
func isUnmet(p *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		return s.State.Terminated != nil && s.State.Terminated.ExitCode == unmet
	})
}

// endings tells how the containers of a pod ended.
func endings(p *corev1.Pod) string {
	var out strings.Builder
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		end := s.State.Terminated
		if end == nil || end.ExitCode == 0 {
			continue
		}
		fmt.Fprintf(&out, "; container %s: %s, exit code %d", s.Name, strings.TrimSpace(end.Reason+" "+end.Message), end.ExitCode)
		if end.ExitCode == unmet {
			out.WriteString(" (it got what it should not get, or did not get what it should)")
		}
	}
	return out.String()
}
