// SPDX-License-Identifier: Apache-2.0

// Package podspec describes a pod as a neutral value. The scheduler, the webhook
// and the device plugin read pods through it, so they cannot disagree about which
// containers ask for devices.
//
// One rule decides: a container asks for devices if it names any of the resources
// with an amount other than zero. Three consequences are deliberate:
//
//   - Memory alone or cores alone ask. The container means one device; package
//     request reports the missing number.
//   - Zero does not ask. Templates write it for "none".
//   - A negative amount asks, so that package request can report it.
//
// The package decides nothing else. What the amounts mean is said in package
// request, and package corepod reads Kubernetes' own type.
//
// Functions here change none of their arguments and are safe for concurrent use.
package podspec

import (
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// Pod is the part of a pod that the rules look at.
type Pod struct {
	// Namespace makes the pod's group unique in the cluster.
	Namespace     string
	UID           string
	SchedulerName string
	Annotations   map[string]string
	Labels        map[string]string
	// Containers are all containers, including those that ask for nothing: init
	// containers and sidecars first, each group in the order of the spec. Ephemeral
	// containers are left out: Kubernetes gives them no resources.
	Containers []Container
}

// Container is one container of a pod.
type Container struct {
	Name string
	Kind sharing.ContainerKind
	// Resources are the amounts of extended resources: the limit, or the request
	// where there is no limit. Fractions are rounded away from zero.
	Resources map[string]int64
	// User is as whom it runs.
	User sharing.User
}

// Amount returns what the container says about a resource; false if it does not
// name it. The empty name is a resource that does not exist.
func (c *Container) Amount(resource string) (int64, bool) {
	if resource == "" {
		return 0, false
	}
	amount, ok := c.Resources[resource]
	return amount, ok
}

// Names are the names of the resources; the configuration can change them. An
// empty name is a resource that does not exist.
type Names struct{ Number, Memory, Cores, Percentage string }

// DefaultNames returns the names used unless configured otherwise.
func DefaultNames() Names {
	return Names{
		Number: wire.ResourceNumber, Memory: wire.ResourceMemory,
		Cores: wire.ResourceCores, Percentage: wire.ResourcePercentage,
	}
}

// Existing returns the names that are not empty, in the order in which mistakes
// are reported.
func (n Names) Existing() []string {
	var names []string
	for _, name := range []string{n.Number, n.Memory, n.Percentage, n.Cores} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// IsUnserved reports whether a resource is named like one that asks for a share of a GPU, and is
// none of the names: one that is misspelled or was renamed, an older one of Volcano, or HAMi's. No
// node offers it. It allocates nothing.
func (n Names) IsUnserved(resource string) bool {
	if resource == n.Number || resource == n.Memory || resource == n.Cores || resource == n.Percentage {
		return false
	}
	_, foreign := wire.ForeignResource(resource)
	return foreign || wire.IsOurs(resource)
}

// InForce returns the name in force of a resource that has this name by default, "" if it does not
// exist.
func (n Names) InForce(byDefault string) string {
	switch byDefault {
	case wire.ResourceNumber:
		return n.Number
	case wire.ResourceMemory:
		return n.Memory
	case wire.ResourceCores:
		return n.Cores
	case wire.ResourcePercentage:
		return n.Percentage
	}
	return ""
}

// Amounts is anything that names amounts of resources as a container does, see
// Container.Amount.
type Amounts interface {
	Amount(resource string) (int64, bool)
}

// ContainerAsks reports whether a container asks for devices: the one rule of
// the package comment. It allocates nothing.
func ContainerAsks[A Amounts](c A, n Names) bool {
	for _, name := range [...]string{n.Number, n.Memory, n.Cores, n.Percentage} {
		if amount, ok := c.Amount(name); ok && amount != 0 {
			return true
		}
	}
	return false
}

// Asks reports whether any container of the pod asks for devices. It allocates
// nothing.
func Asks(p *Pod, n Names) bool {
	for i := range p.Containers {
		if ContainerAsks(&p.Containers[i], n) {
			return true
		}
	}
	return false
}

// Ref returns what a reader of placements must know about one container. A number
// that is not positive counts as 0, which such a reader takes for "not known".
func Ref[A Amounts](c A, name string, kind sharing.ContainerKind, n Names) wire.ContainerRef {
	number, _ := c.Amount(n.Number)
	return wire.ContainerRef{Name: name, Kind: kind, Asks: ContainerAsks(c, n), Count: int(max(number, 0))}
}
