// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
)

// Pod is what the API server says of a pod that asks for devices.
type Pod struct {
	UID, Name string // Name has the namespace in front
	// Holds: it is bound to the node and has not ended, so that what it was given is its own.
	Holds bool
	// Initialized: its init containers have ended, and what only they were given is free.
	Initialized bool
	Containers  []Container
}

// Container is one container of a pod, in the order in which they start.
type Container struct {
	Name string
	// IDs are those of the runtime, of all its lives that were seen.
	IDs    []string
	Kind   Kind
	Shares []Share
}

// Kind says when a container runs.
type Kind string

// The kinds, as the placement annotation spells them.
const (
	App     Kind = "app"
	Init    Kind = "init"
	Sidecar Kind = "sidecar"
)

// Share is what a container was given of one device.
type Share struct {
	Device, Mode string
	Memory       int64 // bytes
	Cores        int   // percent
	Whole        bool
	// Profile, Start and Size say which partition it is, in memory slices; Profile is empty for
	// none.
	Profile     string
	Start, Size int
}

// Offer is what the node offers of one device.
type Offer struct {
	Memory int64 // bytes
	Cores  int   // percent
	Shares int   // containers at a time
}

// Process is a program that uses a device, as the driver sees it.
type Process struct {
	PID int
	// Pod is its pod's UID, Container its container's ID.
	Pod, Container string
	Device         string
	// Profile and Start say in which partition it works; Profile is empty for none.
	Profile string
	Start   int
	Memory  int64 // bytes of the device
}

// Scene is everything at one moment.
type Scene struct {
	// Pods by UID. Pods that were deleted stay: their processes may outlive them for a moment.
	Pods map[string]Pod
	// Offers by device.
	Offers    map[string]Offer
	Processes []Process
}

// Violation is a promise that was broken.
type Violation struct {
	// Promise is the rule's name: shares, memory, partitions.
	Promise string
	Text    string
}

func (v Violation) String() string { return v.Promise + ": " + v.Text }

// Violations lists what of a scene breaks a promise, in a fixed order.
func Violations(s Scene) []Violation {
	return slices.Concat(sharesGivenTwice(s), memoryBeyondLimits(s), partitionsOfTwo(s))
}

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

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
