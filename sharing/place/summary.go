// SPDX-License-Identifier: Apache-2.0

package place

import (
	"slices"

	"deviceshare/sharing"
)

// Summary is an upper bound of what the devices of one node can give, in a few
// numbers per mode. Of the empty devices of a node it tells cheaply that a pod will
// never fit there, whoever else leaves. It is read only.
type Summary struct {
	tiers []modeSummary
}

// modeSummary sums up the devices of one mode that are open: healthy, known, not held
// exclusively and with room for another share.
type modeSummary struct {
	mode sharing.Mode
	open int
	// empty devices could give all their compute, bare ones all their memory.
	empty, bare int
	// memory and cores are the most that any one device has left for one
	// request, smallest is the least that any one offers in all.
	memory, smallest sharing.Bytes
	cores            sharing.Percent
}

// Summarize sums up the devices of a node.
func Summarize(views []sharing.View) Summary {
	var s Summary
	for i := range views {
		v := &views[i]
		if !v.IsOpen() {
			continue
		}
		if one := summarizeDevice(v); one.open > 0 {
			s.summaryFor(v.Device.Mode).addDevice(one)
		}
	}
	return s
}

func (s *Summary) summaryFor(m sharing.Mode) *modeSummary {
	for i := range s.tiers {
		if s.tiers[i].mode == m {
			return &s.tiers[i]
		}
	}
	s.tiers = append(s.tiers, modeSummary{mode: m})
	return &s.tiers[len(s.tiers)-1]
}

func summarizeDevice(v *sharing.View) modeSummary {
	if v.Partitioned() {
		return summarizePartitioned(v)
	}
	one := modeSummary{open: 1, memory: v.FreeMemory(), smallest: v.Device.Memory, cores: v.FreeCores()}
	if v.UsedMemory() == 0 {
		one.bare = 1
	}
	if v.Empty() {
		one.empty = 1
	}
	return one
}

// summarizePartitioned sums up a device that is cut into partitions. What a percentage of
// the memory comes to is not known: smallest stays 0 and refuses none.
func summarizePartitioned(v *sharing.View) modeSummary {
	left, empty := v.Most()
	one := modeSummary{memory: left.Memory, cores: left.Cores}
	if left.Memory > 0 {
		one.open = 1
	}
	if left.Memory == empty.Memory {
		one.bare = 1
	}
	if left.Cores == empty.Cores {
		one.empty = 1
	}
	return one
}

func (t *modeSummary) addDevice(one modeSummary) {
	if t.open == 0 || one.smallest < t.smallest {
		t.smallest = one.smallest
	}
	t.open++
	t.empty += one.empty
	t.bare += one.bare
	t.memory = max(t.memory, one.memory)
	t.cores = max(t.cores, one.cores)
}

// Refuses reports that Place would certainly refuse the pod on these devices. When
// it does not know it says false. It costs the same however many devices there are.
func (s *Summary) Refuses(pod *sharing.PodRequest) bool {
	for i := range pod.Requests {
		if !s.mayServe(pod, &pod.Requests[i]) {
			return true
		}
	}
	return false
}

// mayServe reports whether some mode may have what one container asks for.
func (s *Summary) mayServe(pod *sharing.PodRequest, req *sharing.Request) bool {
	for i := range s.tiers {
		t := &s.tiers[i]
		if (len(pod.Modes) == 0 || slices.Contains(pod.Modes, t.mode)) && t.mayServe(req) {
			return true
		}
	}
	return false
}

// mayServe reports whether the tier may have what one container asks for.
func (t *modeSummary) mayServe(req *sharing.Request) bool {
	if t.open < req.Count || req.Cores > t.cores || req.Exclusive() && t.empty < req.Count {
		return false
	}
	if req.Memory.Whole() {
		return t.bare >= req.Count
	}
	return req.Memory.On(t.smallest) <= t.memory
}
