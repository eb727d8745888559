// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing/podspec"
	"deviceshare/sharing/podspec/corepod"
)

// Unasked is what becomes of a container that asks for no device and would get some all the same,
// because it, or its image, names devices in NVIDIA_VISIBLE_DEVICES.
type Unasked string

// The zero value is no policy.
const (
	// UnaskedAllow leaves such containers as they are.
	UnaskedAllow Unasked = "allow"
	// UnaskedVoid makes them say that they get none, whatever they said.
	UnaskedVoid Unasked = "void"
	// UnaskedDeny makes those say so that say nothing themselves. A ValidatingAdmissionPolicy
	// of the chart refuses pods that name devices.
	UnaskedDeny Unasked = "deny"
)

// Validate refuses what is none of the policies.
func (u Unasked) Validate() error {
	if !slices.Contains([]Unasked{UnaskedAllow, UnaskedVoid, UnaskedDeny}, u) {
		return fmt.Errorf("%q is no policy: write %s, %s or %s", string(u), UnaskedAllow, UnaskedVoid, UnaskedDeny)
	}
	return nil
}

// visibleNone is the value with which NVIDIA's runtime gives a container nothing.
const visibleNone = "void"

// namesDevices reports whether NVIDIA's runtime may give a container devices for an entry of its
// environment. What is read from elsewhere may name some.
func namesDevices(v *corev1.EnvVar) bool {
	return v.Name == VisibleVariable && (v.ValueFrom != nil || !slices.Contains([]string{"", visibleNone, "none"}, v.Value))
}

// Void returns the JSON patch after which no container of a new pod gets devices that it has
// not asked for from NVIDIA's runtime, and a warning for each that has named some. The variable
// of a container overrides that of its image, so containers that say nothing say "void"
// afterwards. From a container that asks, names of devices are removed: its device plugin says
// which it gets. The pod is not changed. Voiding a voided pod returns nothing.
func Void(pod *corev1.Pod, s Settings) (patch []jsonpatch.Operation, warnings []string) {
	if isMirrorPod(pod) {
		return nil, nil
	}
	v := voidPatch{settings: s}
	for at, c := range nonEphemeralContainers(pod) {
		v.voidContainer(c, at.jsonPointer())
	}
	return v.patch, v.warnings
}

// VoidEphemeral is Void for the ephemeral containers that a pod has and had not before. The others
// cannot be changed any more.
func VoidEphemeral(pod, before *corev1.Pod, s Settings) (patch []jsonpatch.Operation, warnings []string) {
	v := voidPatch{settings: s}
	for i := range pod.Spec.EphemeralContainers {
		c := corev1.Container(pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		if !slices.ContainsFunc(before.Spec.EphemeralContainers, func(b corev1.EphemeralContainer) bool { return b.Name == c.Name }) {
			v.voidContainer(&c, "/spec/ephemeralContainers/"+strconv.Itoa(i))
		}
	}
	return v.patch, v.warnings
}

// voidPatch is a patch in the making.
type voidPatch struct {
	settings Settings
	patch    []jsonpatch.Operation
	warnings []string
}

func (v *voidPatch) voidContainer(c *corev1.Container, path string) {
	if v.settings.Unasked != UnaskedVoid && v.settings.Unasked != UnaskedDeny {
		return
	}
	asks, says := v.settings.asksForDevices(c), false
	void := map[string]any{"name": VisibleVariable, "value": visibleNone}
	for i := range slices.Backward(c.Env) { // the last one first: each removal moves those behind it
		says = says || c.Env[i].Name == VisibleVariable
		at := path + "/env/" + strconv.Itoa(i)
		switch {
		case !namesDevices(&c.Env[i]) || v.settings.Unasked == UnaskedDeny:
			continue
		case asks:
			v.patch = append(v.patch, jsonpatch.NewOperation("remove", at, nil))
		default:
			v.patch = append(v.patch, jsonpatch.NewOperation("replace", at, void))
		}
		v.warnings = append(v.warnings, fmt.Sprintf("container %s: %s named devices and does not any more: ask for %s",
			c.Name, VisibleVariable, v.settings.Names.Number))
	}
	switch {
	case asks || says:
	case len(c.Env) == 0:
		v.patch = append(v.patch, jsonpatch.NewOperation("add", path+"/env", []any{void}))
	default:
		v.patch = append(v.patch, jsonpatch.NewOperation("add", path+"/env/-", void))
	}
}

// asksForDevices reports whether a container asks for devices, ours or those of another device
// plugin or of a driver for dynamic allocation. An amount of zero asks for nothing.
func (s Settings) asksForDevices(c *corev1.Container) bool {
	if len(c.Resources.Claims) > 0 || podspec.ContainerAsks(corepod.Container{Container: c}, s.Names) {
		return true
	}
	for _, list := range []corev1.ResourceList{c.Resources.Limits, c.Resources.Requests} {
		for name, amount := range list {
			if !amount.IsZero() && slices.ContainsFunc(s.AskedBy, func(pattern string) bool { return matchesName(string(name), pattern) }) {
				return true
			}
		}
	}
	return false
}

// matchesName reports whether a pattern is the name of a resource or, with a * at its end, the
// beginning of the name.
func matchesName(name, pattern string) bool {
	if prefix, open := strings.CutSuffix(pattern, "*"); open {
		return strings.HasPrefix(name, prefix)
	}
	return name == pattern
}
