// SPDX-License-Identifier: Apache-2.0

// Package request reads what a pod asks for. Its input is a neutral description
// of the pod, so that the scheduler and the webhook judge by the same rules.
//
// The rules: the amounts are per container; memory and cores are per device;
// without memory and percentage a device's whole memory is asked; cores of 100
// ask for a device's compute alone; a percentage is resolved on the device that
// is chosen. A reader of people's input, it reports every mistake at once, with
// its path, and returns nothing half-read.
//
// Functions here change none of their arguments and are safe for concurrent use.
package request

import (
	"strconv"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// Pod is the part of a pod the rules look at.
type Pod struct {
	// Namespace makes the group of the pod unique in the cluster.
	Namespace     string
	UID           string
	SchedulerName string
	Annotations   map[string]string
	// Containers are all containers, those that ask for nothing included: init
	// containers and sidecars first, each group in the order of the spec.
	Containers []Container
}

// Container is one container of a pod.
type Container struct {
	Name string
	Kind sharing.ContainerKind
	// Resources are the limits of extended resources, or the requests where
	// there is no limit, as plain integers.
	Resources map[string]int64
}

// Names are the resource names; they can be changed by configuration. An empty
// name is a resource that does not exist.
type Names struct{ Number, Memory, Cores, Percentage string }

// DefaultNames returns the names used unless configured otherwise.
func DefaultNames() Names {
	return Names{
		Number: wire.ResourceNumber, Memory: wire.ResourceMemory,
		Cores: wire.ResourceCores, Percentage: wire.ResourcePercentage,
	}
}

// all returns the names that exist, in the order in which mistakes are reported.
func (n Names) all() []string {
	var names []string
	for _, name := range []string{n.Number, n.Memory, n.Percentage, n.Cores} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// Defaults is what a container that asks for devices gets where it does not say.
// The zero value means the whole memory and no compute guarantee.
type Defaults struct {
	// Memory is in units of the memory factor; 0 is the whole memory.
	Memory int64
	// Cores is in percent of a device; 0 is no guarantee and no limit.
	Cores sharing.Percent
}

// Mistake is one thing that is wrong with a pod.
type Mistake struct {
	// Path is where, such as
	// "spec.containers[1] (main) resources.limits[volcano.sh/vgpu-memory]".
	Path string
	// Message says what is wrong and, where it can, what to write instead.
	Message string
}

// String joins path and message.
func (m Mistake) String() string { return m.Path + ": " + m.Message }

// Option adjusts how a pod is read.
type Option func(*reader)

// WithPolicies makes every placement policy but these a mistake. Without it any
// well-formed name is accepted.
func WithPolicies(names ...string) Option {
	return func(r *reader) { r.policies = append([]string{}, names...) }
}

// WithDefaults sets what a container gets where it does not say.
func WithDefaults(d Defaults) Option {
	return func(r *reader) { r.defaults = d }
}

// Asks reports whether any container of the pod asks for more than zero of any
// of the resources. It allocates nothing.
func Asks(p *Pod, n Names) bool {
	for i := range p.Containers {
		if p.Containers[i].asks(&n) {
			return true
		}
	}
	return false
}

func (c *Container) asks(n *Names) bool {
	if len(c.Resources) == 0 {
		return false
	}
	for _, name := range [...]string{n.Number, n.Memory, n.Cores, n.Percentage} {
		if amount, ok := c.amount(name); ok && amount != 0 {
			return true
		}
	}
	return false
}

// amount returns what the container says about a resource, if the resource exists.
func (c *Container) amount(name string) (int64, bool) {
	if name == "" {
		return 0, false
	}
	amount, ok := c.Resources[name]
	return amount, ok
}

// Read turns the pod into a request. Memory is in units of factor MiB; a factor
// below 1 counts as 1. If there is any mistake the request is empty. A pod that
// asks for nothing gives a request without containers; its annotations are
// checked all the same, for whoever wrote them expected something of them.
func Read(p *Pod, n Names, factor int64, options ...Option) (sharing.PodRequest, []Mistake) {
	r := reader{names: n, factor: max(factor, 1)}
	for _, o := range options {
		o(&r)
	}
	out := sharing.PodRequest{Owner: sharing.Owner(p.UID)}
	apps, inits := 0, 0
	for i := range p.Containers {
		c := &p.Containers[i]
		path := "spec.initContainers[" + strconv.Itoa(inits) + "] (" + c.Name + ")"
		if c.Kind == sharing.App {
			path = "spec.containers[" + strconv.Itoa(apps) + "] (" + c.Name + ")"
			apps++
		} else {
			inits++
		}
		if req, ok := r.container(path, c); ok {
			out.Requests = append(out.Requests, req)
		}
	}
	r.annotations(p, &out)
	if len(r.mistakes) > 0 {
		return sharing.PodRequest{}, r.mistakes
	}
	return out, nil
}

// reader collects the mistakes of one pod.
type reader struct {
	names    Names
	factor   int64
	defaults Defaults
	policies []string
	mistakes []Mistake
}

func (r *reader) mistake(path, message string) {
	r.mistakes = append(r.mistakes, Mistake{Path: path, Message: message})
}
