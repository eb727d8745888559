// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec/corepod"
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

// Review judges a pod. A pod that asks for none of our resources, nor for one that we are
// mistaken for, is never refused. The pod is not changed.
func Review(pod *corev1.Pod, s Settings) Verdict {
	if isMirrorPod(pod) {
		return Verdict{}
	}
	read := corepod.Read(pod)
	foreign := s.Foreign(&read)
	asks, ours := corepod.Asks(pod, s.Names), slices.Contains(s.Schedulers, pod.Spec.SchedulerName)
	if !asks && !(ours && corepod.AsksUnserved(pod, s.Names)) {
		return Verdict{Warnings: request.Texts(foreign)}
	}
	asked, mistakes := s.Read(&read)
	if ours {
		mistakes, foreign = append(mistakes, foreign...), nil
	}
	if pod.Spec.NodeName != "" {
		mistakes = append(mistakes, request.Mistake{Path: "spec.nodeName", Message: "a pod that names its node is never seen by the scheduler, " +
			"so no device is chosen for it: use nodeSelector with kubernetes.io/hostname: " + pod.Spec.NodeName})
	}
	mistakes = append(append(mistakes, copiedKeyMistakes(pod)...), visibleEnvMistakes(pod, s)...)
	return Verdict{Mistakes: mistakes, Warnings: slices.Concat(schedulerWarnings(pod, s), neighbourWarnings(&asked), request.Texts(foreign))}
}

// neighbourWarnings names a wish that costs more than it seems to.
func neighbourWarnings(asked *sharing.PodRequest) []string {
	if !asked.Neighbours.IsAlone() || !slices.Contains(asked.Modes, sharing.MIG) {
		return nil
	}
	return []string{fmt.Sprintf("%s %s: in mode %s, too, the pod takes whole devices: all other partitions stay free, which share neither memory nor compute with its own",
		wire.UserNeighbours, asked.Neighbours.Accepts, sharing.MIG)}
}

// schedulerWarnings names what is legal and probably not meant.
func schedulerWarnings(pod *corev1.Pod, s Settings) []string {
	var out []string
	if name := pod.Spec.SchedulerName; !slices.Contains(s.Schedulers, name) {
		out = append(out, fmt.Sprintf("spec.schedulerName is %q: GPU shares are given by %s only; "+
			"with another scheduler the containers wait for a placement that nobody makes",
			name, strings.Join(s.Schedulers, ", ")))
	} else if gate, remover := corepod.Gate(pod); gate == corepod.QueueGate {
		out = append(out, fmt.Sprintf("spec.schedulingGates: the pod waits for ever because of %s: %s", gate, remover))
	}
	return out
}

// copiedKeyMistakes refuses what only a scheduler writes. Complete removes it; what is there all
// the same was put back by somebody, and a scheduler that does not overwrite it
// would give the pod what stands there.
func copiedKeyMistakes(pod *corev1.Pod) []request.Mistake {
	var out []request.Mistake
	for _, key := range copiedKeys(pod) {
		out = append(out, request.Mistake{Path: "metadata.annotations[" + key + "]",
			Message: "is written by the scheduler when it binds the pod, so this is probably copied from another pod: remove it"})
	}
	return out
}

// visibleEnvMistakes refuses what Complete removes, and another webhook has put back.
func visibleEnvMistakes(pod *corev1.Pod, s Settings) []request.Mistake {
	var out []request.Mistake
	for at, c := range askingContainers(pod, s) {
		if slices.ContainsFunc(c.Env, func(v corev1.EnvVar) bool { return v.Name == VisibleVariable }) {
			out = append(out, request.Mistake{Path: fmt.Sprintf("spec.%s[%d] (%s) env[%s]", at.list, at.index, c.Name, VisibleVariable),
				Message: "NVIDIA's runtime would give the container the devices that it names, past every share: remove it"})
		}
	}
	return out
}

// copiedKeys returns which annotations of a new pod only a scheduler can have written.
func copiedKeys(pod *corev1.Pod) []string {
	return slices.DeleteFunc(schedulerKeys(), func(key string) bool {
		_, there := pod.Annotations[key]
		return !there
	})
}

// schedulerKeys are the annotations that only a scheduler, or a device plugin after
// it, writes.
func schedulerKeys() []string {
	return append(PlacementKeys(), wire.PodToAllocate, wire.PodTime, wire.PodBindPhase, wire.PodBindTime)
}

// PlacementKeys are the annotations by which a pod holds devices: whoever changes
// them on a pod that runs takes devices from others, or gives away its own.
func PlacementKeys() []string {
	return []string{wire.PodPlacement, wire.PodNode, wire.PodAssigned}
}
