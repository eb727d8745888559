// SPDX-License-Identifier: Apache-2.0

package place

import "deviceshare/sharing"

// Summary is what is left on the devices of one node, in a few numbers per mode:
// enough to refuse most pods that do not fit without looking at the devices. It
// is made when the ledger changed and is read only.
type Summary struct {
	tiers [ranks]tier
}

// tier sums up the devices of one mode that are open: healthy, known, not held
// exclusively and with room for another share.
type tier struct {
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
	everyone := sharing.PodRequest{}
	for i := range views {
		v := &views[i]
		if v.Admit(&everyone) != sharing.Fits {
			continue
		}
		one := tier{open: 1, memory: v.FreeMemory(), smallest: v.Device.Memory, cores: v.FreeCores()}
		if v.UsedMemory() == 0 {
			one.bare = 1
		}
		if v.Empty() {
			one.empty = 1
		}
		if v.Partitioned() {
			one = partitioned(v)
		}
		s.tiers[rank(v.Device.Mode)].add(one)
	}
	return s
}

// partitioned sums up a device that is cut into partitions. What a percentage of
// the memory comes to is not known: smallest stays 0 and refuses none.
func partitioned(v *sharing.View) tier {
	left, empty := v.Most()
	one := tier{memory: left.Memory, cores: left.Cores}
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

// add counts one more device.
func (t *tier) add(one tier) {
	if one.open == 0 {
		return
	}
	if t.open == 0 || one.smallest < t.smallest {
		t.smallest = one.smallest
	}
	t.open++
	t.empty += one.empty
	t.bare += one.bare
	t.memory = max(t.memory, one.memory)
	t.cores = max(t.cores, one.cores)
}

// Refuses reports that Place would certainly refuse the pod. When it does not
// know it says false. It costs the same whatever is on the node.
func (s *Summary) Refuses(pod *sharing.PodRequest) bool {
	for i := range pod.Requests {
		if !s.serves(pod, &pod.Requests[i]) {
			return true
		}
	}
	return false
}

// serves reports whether some mode may have what one container asks for.
func (s *Summary) serves(pod *sharing.PodRequest, req *sharing.Request) bool {
	for _, m := range pod.Modes {
		if s.tiers[rank(m)].serves(req) {
			return true
		}
	}
	for r := range s.tiers {
		if len(pod.Modes) == 0 && s.tiers[r].serves(req) {
			return true
		}
	}
	return false
}

// serves reports whether the tier may have what one container asks for.
func (t *tier) serves(req *sharing.Request) bool {
	switch {
	case t.open < req.Count, req.Cores > t.cores, req.Exclusive() && t.empty < req.Count:
		return false
	case req.Memory.Whole():
		return t.bare >= req.Count
	}
	return req.Memory.On(t.smallest) <= t.memory
}
