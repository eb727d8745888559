// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"slices"
)

// partitionsOfTwo wants each partition to be used by the container to which it was given.
func partitionsOfTwo(s Scene) []Violation {
	var out []Violation
	type place struct {
		device string
		start  int
	}
	first := map[place]Process{}
	for _, p := range s.Processes {
		if p.Profile == "" {
			continue
		}
		at := place{p.Device, p.Start}
		other, taken := first[at]
		if !taken {
			first[at] = p
		} else if other.Container != p.Container {
			out = append(out, Violation{"partitions", fmt.Sprintf("%s at slice %d of device %s is used by containers %s and %s",
				p.Profile, p.Start, p.Device, other.Container, p.Container)})
		}
		pod, known := s.Pods[p.Pod]
		if known && !pod.given(p) {
			out = append(out, Violation{"partitions", fmt.Sprintf("%s works in %s at slice %d of device %s, which it was not given",
				pod.Name, p.Profile, p.Start, p.Device)})
		}
	}
	return out
}

// given reports whether the pod was given the partition in which a process works.
func (p Pod) given(q Process) bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool {
		return slices.ContainsFunc(c.Shares, func(s Share) bool {
			return s.Device == q.Device && s.Profile == q.Profile && s.Start == q.Start
		})
	})
}

// partitionsGone wants that each container which runs has the partitions it was given.
func partitionsGone(s Scene) []Violation {
	var out []Violation
	for _, uid := range sorted(s.Pods) {
		p := s.Pods[uid]
		for _, c := range p.Containers {
			isAlive := slices.ContainsFunc(c.IDs, func(id string) bool { return s.Alive[id] })
			if !p.Holds || !isAlive {
				continue
			}
			for _, share := range c.Shares {
				if share.Profile != "" && !slices.Contains(s.Partitions, Partition{share.Device, share.Profile, share.Start}) {
					out = append(out, Violation{"partitions", fmt.Sprintf("%s/%s runs, and its %s at slice %d of device %s is gone",
						p.Name, c.Name, share.Profile, share.Start, share.Device)})
				}
			}
		}
	}
	return out
}
