// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"iter"
	"slices"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing/podspec"
	"deviceshare/sharing/podspec/corepod"
)

// Complete returns the JSON patch that adds what the pod left out and removes the
// annotations that only a scheduler writes; nil if there is nothing to do. To a pod that
// asks for none of the resources nothing is added. The pod is not changed. Completing a
// completed pod returns nil.
func Complete(pod *corev1.Pod, s Settings) []jsonpatch.Operation {
	if isMirrorPod(pod) {
		return nil
	}
	var patch []jsonpatch.Operation
	if corepod.Asks(pod, s.Names) {
		patch = missingFields(pod, s)
	}
	for _, key := range copiedKeys(pod) {
		patch = append(patch, jsonpatch.NewOperation("remove", "/metadata/annotations/"+escapePointer(key), nil))
	}
	return patch
}

// missingFields returns the patch that adds what a pod that asks for devices left out.
func missingFields(pod *corev1.Pod, s Settings) []jsonpatch.Operation {
	var patch []jsonpatch.Operation
	for at, c := range askingContainers(pod, s) {
		patch = append(append(patch, addNumber(c, at.jsonPointer(), s)...), dropVisible(c, at.jsonPointer())...)
	}
	if name := pod.Spec.SchedulerName; name == "" || name == corev1.DefaultSchedulerName {
		if name != s.Schedulers[0] {
			patch = append(patch, jsonpatch.NewOperation("add", "/spec/schedulerName", s.Schedulers[0]))
		}
	}
	return patch
}

// isMirrorPod reports whether the pod only shows what a kubelet runs from a file. Changing such
// a pod makes the kubelet delete it and try again.
func isMirrorPod(pod *corev1.Pod) bool {
	_, there := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return there
}

// position is where a container stands: in which list of a pod's spec, and at which place there.
type position struct {
	list  string
	index int
}

// jsonPointer is the position as a JSON pointer (RFC 6901).
func (p position) jsonPointer() string { return "/spec/" + p.list + "/" + strconv.Itoa(p.index) }

// nonEphemeralContainers yields the containers of a pod that are there from its start, init
// containers first.
func nonEphemeralContainers(pod *corev1.Pod) iter.Seq2[position, *corev1.Container] {
	return func(yield func(position, *corev1.Container) bool) {
		for i := range pod.Spec.InitContainers {
			if !yield(position{"initContainers", i}, &pod.Spec.InitContainers[i]) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield(position{"containers", i}, &pod.Spec.Containers[i]) {
				return
			}
		}
	}
}

func askingContainers(pod *corev1.Pod, s Settings) iter.Seq2[position, *corev1.Container] {
	return func(yield func(position, *corev1.Container) bool) {
		for at, c := range nonEphemeralContainers(pod) {
			if podspec.ContainerAsks(corepod.Container{Container: c}, s.Names) && !yield(at, c) {
				return
			}
		}
	}
}

// addNumber adds the number of devices to a container that asks for something of a
// device without it. The request is written beside the limit, as the API server
// wants both equal.
func addNumber(c *corev1.Container, path string, s Settings) []jsonpatch.Operation {
	r, n := &c.Resources, s.Names
	if _, hasNumber := (corepod.Container{Container: c}).Amount(n.Number); hasNumber {
		return nil
	}
	count := strconv.FormatInt(s.Count, 10) // a JSON string, as quantities are
	return []jsonpatch.Operation{
		addAmount(r.Limits, path+"/resources/limits", n.Number, count),
		addAmount(r.Requests, path+"/resources/requests", n.Number, count),
	}
}

// addAmount adds one entry to a list, which is made if it is not there.
func addAmount(list corev1.ResourceList, path, name, amount string) jsonpatch.Operation {
	if len(list) == 0 {
		return jsonpatch.NewOperation("add", path, map[string]any{name: amount})
	}
	return jsonpatch.NewOperation("add", path+"/"+escapePointer(name), amount)
}

// VisibleVariable makes NVIDIA's runtime give a container the devices that it names, past every
// share. A device plugin sets it to those it allocated, and what the pod says of it wins.
const VisibleVariable = "NVIDIA_VISIBLE_DEVICES"

// dropVisible removes what a container itself says of the devices that it is to see. The last one
// goes first: each removal moves those behind it.
func dropVisible(c *corev1.Container, path string) []jsonpatch.Operation {
	var patch []jsonpatch.Operation
	for i, v := range slices.Backward(c.Env) {
		if v.Name == VisibleVariable {
			patch = append(patch, jsonpatch.NewOperation("remove", path+"/env/"+strconv.Itoa(i), nil))
		}
	}
	return patch
}

// escapePointer writes a key as a step of a JSON pointer (RFC 6901).
func escapePointer(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}
