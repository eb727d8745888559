// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// memoryBeyondLimits compares what containers have of a device with what they were given.
func memoryBeyondLimits(s Scene) []Violation {
	type user struct{ pod, container, device string }
	used := map[user]int64{}
	for _, p := range s.Processes {
		used[user{p.Pod, p.Container, p.Device}] += p.Memory
	}
	var out []Violation
	say := func(text string, args ...any) {
		out = append(out, Violation{"memory", fmt.Sprintf(text, args...)})
	}
	order := func(a, b user) int {
		return cmp.Or(cmp.Compare(a.pod, b.pod), cmp.Compare(a.container, b.container), cmp.Compare(a.device, b.device))
	}
	for _, u := range slices.SortedFunc(maps.Keys(used), order) {
		pod, known := s.Pods[u.pod]
		if !known {
			say("container %s of an unknown pod %s uses device %s", u.container, u.pod, u.device)
			continue
		}
		share, name, found := pod.shareOf(u.container, u.device)
		if !found {
			say("%s uses device %s, which it was not given", name, u.device)
			continue
		}
		if limit := share.Memory; !share.Whole && share.Profile == "" && used[u] > limit {
			say("%s has %d bytes of device %s, its limit is %d", name, used[u], u.device, limit)
		}
	}
	return out
}

// shareOf is the share of a device of the container with a runtime's ID. While the kubelet has not
// yet reported that ID, the largest share of the pod's containers counts.
func (p Pod) shareOf(id, device string) (share Share, name string, found bool) {
	name, candidates := p.Name, p.Containers
	i := slices.IndexFunc(p.Containers, func(c Container) bool { return slices.Contains(c.IDs, id) })
	if i >= 0 {
		name, candidates = p.Name+"/"+p.Containers[i].Name, p.Containers[i:i+1]
	}
	for _, c := range candidates {
		for _, s := range c.Shares {
			if s.Device == device && (!found || s.Memory > share.Memory) {
				share, found = s, true
			}
		}
	}
	return share, name, found
}
