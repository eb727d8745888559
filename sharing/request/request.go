// SPDX-License-Identifier: Apache-2.0

// Package request reads what a pod asks for. Its input is the neutral pod of package
// podspec, so that the scheduler and the webhook judge by the same rules.
//
// The rules: the amounts are per container; memory and cores are per device, or
// totals of the container's devices with the annotation wire.UserSplit, see amountPerDevice;
// without memory and percentage a device's whole memory is asked; cores of 100
// ask for a device's compute alone; a percentage is resolved on the device that
// is chosen. A reader of people's input, it reports every mistake at once, with
// its path, and returns nothing half-read.
//
// Functions here change none of their arguments and are safe for concurrent use.
package request

import (
	"fmt"
	"iter"
	"strconv"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

// Defaults is what a container that asks for devices gets where it does not say.
// The zero value means the whole memory and no compute guarantee.
type Defaults struct {
	// Memory is in units of the memory factor; 0 is the whole memory.
	Memory int64
	// Cores is in percent of a device; 0 is no guarantee and no limit.
	Cores sharing.Percent
}

// MostAsking is how many containers of a pod may ask for devices: each is weighed against each
// device of each node, beside those before it.
const MostAsking = 64

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

// Read turns the pod into a request. Memory is in units of factor MiB; a factor
// below 1 counts as 1. If there is any mistake the request is empty. A pod that
// asks for nothing gives a request without containers; its annotations are
// checked all the same, for whoever wrote them expected something of them.
func Read(p *podspec.Pod, n podspec.Names, factor int64, options ...Option) (sharing.PodRequest, []Mistake) {
	r := reader{names: n, namespace: p.Namespace, factor: max(factor, 1)}
	for _, o := range options {
		o(&r)
	}
	_, r.split = podAnnotations(p.Annotations).lookupKnown(wire.UserSplit)
	out := sharing.PodRequest{Owner: sharing.Owner(p.UID), Namespace: p.Namespace}
	for path, c := range containersOf(p) {
		if req, ok := r.readContainer(path, c); ok {
			out.Requests = append(out.Requests, req)
		}
	}
	if n := len(out.Requests); n > MostAsking {
		r.addMistake("spec", fmt.Sprintf("%d containers ask for devices, want at most %d", n, MostAsking))
	}
	r.readAnnotations(p, &out)
	if len(r.mistakes) > 0 {
		return sharing.PodRequest{}, r.mistakes
	}
	return out, nil
}

// containersOf yields the containers of a pod, each with its path.
func containersOf(p *podspec.Pod) iter.Seq2[string, *podspec.Container] {
	return func(yield func(string, *podspec.Container) bool) {
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
			if !yield(path, c) {
				return
			}
		}
	}
}

// reader collects the mistakes of one pod.
type reader struct {
	names     podspec.Names
	namespace string
	factor    int64
	defaults  Defaults
	policies  []string
	// split says that amounts are totals of a container's devices, see amountPerDevice.
	split    bool
	mistakes []Mistake
}

func (r *reader) addMistake(path, message string) {
	r.mistakes = append(r.mistakes, Mistake{Path: path, Message: message})
}
