// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/quota"
	"deviceshare/sharing/request"
)

// Settings is what the device configuration says to the scheduler, with what its own configuration
// adds. A value is never changed; an edit of the configuration makes a new one, and every
// node is read anew.
type Settings struct {
	// Names are the resource names that pods ask with.
	Names podspec.Names
	// Factor is how many MiB one unit of the memory resource is.
	Factor int64
	// Defaults are what a container gets where it does not say.
	Defaults request.Defaults
	// Unread says that nobody knows what the configuration says. Any extended resource
	// may then be one of ours under another name.
	Unread bool
	// Apart are the rules of the plugin's arguments that keep pods on different devices.
	Apart ApartRules
	// AllocatesClaims says that a plugin of Volcano allocates the resource claims of pods.
	AllocatesClaims bool
}

// DefaultSettings are in force where there is no configuration.
func DefaultSettings() Settings {
	return Settings{Names: podspec.DefaultNames(), Factor: 1}
}

// ReadRequest reads what a pod asks for. Mistakes are why it cannot be served, all at once; a pod
// that asks by names which nobody serves has some, too.
func (s *Settings) ReadRequest(pod *corev1.Pod) (sharing.PodRequest, []request.Mistake) {
	read, rules := corepod.Read(pod), s.Rules()
	req, mistakes := rules.Read(&read)
	if foreign := rules.Foreign(&read); len(foreign) > 0 {
		return sharing.PodRequest{}, append(mistakes, foreign...)
	}
	if len(mistakes) == 0 {
		s.Apart.addTo(req.Neighbours)
	}
	return req, mistakes
}

// Rules returns by what pods and claims are read.
func (s *Settings) Rules() request.Rules {
	return request.Rules{Names: s.Names, Factor: s.Factor, Defaults: s.Defaults}
}

// LimitNames returns the names of the resources that limits of queues are about.
func (s *Settings) LimitNames() quota.Names {
	return quota.Names{Memory: s.Names.Memory, Cores: s.Names.Cores, Number: s.Names.Number, Factor: s.Factor}
}

// Capability returns the limits of devices in the capability of a queue, in the order of their
// names.
func (s *Settings) Capability(list corev1.ResourceList) []quota.Limit {
	return limitsIn(list, s.LimitNames())
}

// Limits returns the limits of device memory and compute in a list of resources of a queue, in the
// order of their names. The number of devices that a queue deserves, or is guaranteed, is left to
// Volcano, which counts it exactly.
func (s *Settings) Limits(list corev1.ResourceList) []quota.Limit {
	names := s.LimitNames()
	names.Number = ""
	return limitsIn(list, names)
}

func limitsIn(list corev1.ResourceList, names quota.Names) []quota.Limit {
	var limits []quota.Limit
	for name, amount := range list {
		if l, ok := quota.ReadLimit(string(name), amount.Value(), names); ok {
			limits = append(limits, l)
		}
	}
	slices.SortFunc(limits, func(a, b quota.Limit) int { return strings.Compare(a.Name, b.Name) })
	return limits
}
