// SPDX-License-Identifier: Apache-2.0

// Package occupancy tells whose processes use a device: a container that has a share of it, or
// somebody who was given nothing. The driver lists processes by their numbers on the host. The
// kubelet names the control groups of a container after its pod, the runtime after the container.
package occupancy

import (
	"github.com/prometheus/procfs"

	"deviceshare/sharing"
)

// Kind is whose a process is, in respect of one device.
type Kind uint8

// The kinds.
const (
	// Holder: a container that has a share of the device.
	Holder Kind = iota
	// Undecided: a pod that has a share, in a container whose id is not known yet. The kubelet says
	// it up to ten seconds after the container has started.
	Undecided
	// Stranger: a pod, or a container of a pod, that has no share.
	Stranger
	// Host: a program outside of all pods.
	Host
)

// String names the kind in English.
func (k Kind) String() string {
	switch k {
	case Holder:
		return "holder"
	case Undecided:
		return "undecided"
	case Stranger:
		return "stranger"
	case Host:
		return "host"
	}
	return "unknown"
}

// Container is one container of a pod.
type Container struct {
	Name string
	// ID is what the runtime calls it, "" while that is not known.
	ID string
	// HasShare is whether it was given a share of the device.
	HasShare bool
}

// Pods are the pods with shares of a device and all of their containers.
type Pods map[sharing.Owner][]Container

// Occupant is whose a process is.
type Occupant struct {
	Kind Kind
	// Owner is the pod, "" for a program of the host.
	Owner sharing.Owner
	// Container is its name where it is known.
	Container string
}

// Of tells whose a process with these control groups is.
func (p Pods) Of(groups []procfs.Cgroup) Occupant {
	owner, known := PodOf(groups)
	if !known {
		return Occupant{Kind: Host}
	}
	containers, known := p[owner]
	if !known {
		return Occupant{Kind: Stranger, Owner: owner}
	}
	for _, c := range containers {
		if c.ID == "" || !IsOf(groups, c.ID) {
			continue
		}
		if c.HasShare {
			return Occupant{Holder, owner, c.Name}
		}
		return Occupant{Stranger, owner, c.Name}
	}
	return Occupant{Kind: Undecided, Owner: owner, Container: p.onlyHolder(owner)}
}

// onlyHolder is the container of a pod that has a share, "" if several have.
func (p Pods) onlyHolder(owner sharing.Owner) string {
	only, several := "", false
	for _, c := range p[owner] {
		if c.HasShare {
			only, several = c.Name, only != ""
		}
		if several {
			return ""
		}
	}
	return only
}
