// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"slices"
)

// held is what pods hold of one device.
type held struct {
	memory     int64
	cores      int
	containers int
	whole      []string          // containers that have it to themselves
	modes      map[string]string // mode to a container that has it so
	slices     map[int]string    // memory slice to the container that has it
	twice      []string
}

// sharesGivenTwice adds up what was promised of each device.
func sharesGivenTwice(s Scene) []Violation {
	var out []Violation
	all := map[string]*held{}
	for _, uid := range sorted(s.Pods) {
		if p := s.Pods[uid]; p.Holds {
			p.addTo(all)
		}
	}
	say := func(device, text string, args ...any) {
		out = append(out, Violation{"shares", "device " + device + ": " + fmt.Sprintf(text, args...)})
	}
	for _, device := range sorted(all) {
		h := all[device]
		for _, text := range h.twice {
			say(device, "%s", text)
		}
		if len(h.whole) > 0 && h.containers > 1 {
			say(device, "%q has it whole, and %d containers have it", h.whole, h.containers)
		}
		if len(h.modes) > 1 {
			say(device, "it is in %d modes at once: %v", len(h.modes), h.modes)
		}
		offer, known := s.Offers[device]
		if !known {
			continue // a device that is gone offers nothing, and pods may outlive it
		}
		if h.memory > offer.Memory {
			say(device, "%d bytes were given of %d", h.memory, offer.Memory)
		}
		if h.cores > offer.Cores {
			say(device, "%d %% of compute were given of %d %%", h.cores, offer.Cores)
		}
		if h.containers > offer.Shares {
			say(device, "%d containers have it, %d may", h.containers, offer.Shares)
		}
	}
	return out
}

// addTo adds what a pod holds. While its init containers run, only what they have and what runs
// beside them is counted; it is less than what the scheduler must keep for the pod, so that this
// finds no fault where there is none.
func (p Pod) addTo(all map[string]*held) {
	for _, c := range p.Containers {
		if c.Kind == Init && p.Initialized {
			continue
		}
		if c.Kind == App && !p.Initialized && p.hasInit() {
			continue
		}
		name := p.Name + "/" + c.Name
		for _, s := range c.Shares {
			h := all[s.Device]
			if h == nil {
				h = &held{modes: map[string]string{}, slices: map[int]string{}}
				all[s.Device] = h
			}
			h.add(name, s, c.Kind == Init)
		}
	}
}

func (p Pod) hasInit() bool {
	return slices.ContainsFunc(p.Containers, func(c Container) bool { return c.Kind == Init })
}

// add counts one share. Init containers run one after the other, so that they are not added up.
func (h *held) add(name string, s Share, one bool) {
	h.modes[s.Mode] = name
	if one {
		return
	}
	h.memory += s.Memory
	h.cores += s.Cores
	h.containers++
	if s.Whole {
		h.whole = append(h.whole, name)
	}
	if s.Profile == "" {
		return
	}
	for slice := s.Start; slice < s.Start+s.Size; slice++ {
		if other, taken := h.slices[slice]; taken {
			h.twice = append(h.twice, fmt.Sprintf("memory slice %d was given to %s and %s", slice, other, name))
		}
		h.slices[slice] = name
	}
}
