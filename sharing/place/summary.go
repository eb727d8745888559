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
	// empty devices have no shares, bare ones have all their memory.
	empty, bare int
	// memory and cores are the most that any one device has left, smallest is
	// the least that any one offers in all.
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
		t := &s.tiers[rank(v.Device.Mode)]
		if t.open == 0 || v.Device.Memory < t.smallest {
			t.smallest = v.Device.Memory
		}
		t.open++
		t.memory = max(t.memory, v.FreeMemory())
		t.cores = max(t.cores, v.FreeCores())
		if v.Empty() {
			t.empty++
		}
		if v.UsedMemory() == 0 {
			t.bare++
		}
	}
	return s
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
	if len(pod.Modes) == 0 {
		for r := range s.tiers {
			if s.tiers[r].serves(req, r == 0) {
				return true
			}
		}
		return false
	}
	for _, m := range pod.Modes {
		if r := rank(m); s.tiers[r].serves(req, r == 0) {
			return true
		}
	}
	return false
}

// serves reports whether the tier may have what one container asks for. Amounts
// say nothing about partitions.
func (t *tier) serves(req *sharing.Request, partitions bool) bool {
	if t.open < req.Count {
		return false
	}
	if partitions {
		return true
	}
	if req.Memory.Whole() && t.bare < req.Count || req.Exclusive() && t.empty < req.Count {
		return false
	}
	return req.Memory.On(t.smallest) <= t.memory && req.Cores <= t.cores
}
