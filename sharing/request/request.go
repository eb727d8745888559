// SPDX-License-Identifier: Apache-2.0

// Package request reads what a pod asks for. Its input is the neutral pod of package
// podspec. Scheduler, webhook, device plugin and views read pods with [Rules] and with nothing
// else, so that the same pod cannot be read in two ways.
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

// Texts are mistakes as texts, nil if there are none.
func Texts(mistakes []Mistake) (texts []string) {
	for _, m := range mistakes {
		texts = append(texts, m.String())
	}
	return texts
}

// Rules are by what pods are read. Every program makes them from the device configuration, so that
// none reads a pod in its own way. The zero value has no resources.
type Rules struct {
	// Names are the resource names that pods ask with.
	Names podspec.Names
	// Factor is how many MiB one unit of the memory resource is; below 1 counts as 1.
	Factor int64
	// Defaults are what a container gets where it does not say.
	Defaults Defaults
}

// Read turns the pod into a request. If there is any mistake the request is empty. A pod that
// asks for nothing gives a request without containers; its annotations are
// checked all the same, for whoever wrote them expected something of them.
func (r Rules) Read(p *podspec.Pod) (sharing.PodRequest, []Mistake) {
	in := r.newReader(p)
	out := sharing.PodRequest{Owner: sharing.Owner(p.UID), Namespace: p.Namespace, Requests: in.readContainers(p)}
	in.readAnnotations(p, &out)
	if len(in.mistakes) > 0 {
		return sharing.PodRequest{}, in.mistakes
	}
	return out, nil
}

// ReadContainers is the part of Read that is about the amounts of containers: a mistake in an
// annotation, which can be written to a pod that exists, takes nothing from it.
func (r Rules) ReadContainers(p *podspec.Pod) ([]sharing.Request, []Mistake) {
	in := r.newReader(p)
	out := in.readContainers(p)
	if len(in.mistakes) > 0 {
		return nil, in.mistakes
	}
	return out, nil
}

func (r Rules) newReader(p *podspec.Pod) *reader {
	_, split := podAnnotations(p.Annotations).lookupKnown(wire.UserSplit)
	return &reader{Rules: Rules{r.Names, max(r.Factor, 1), r.Defaults}, namespace: p.Namespace, split: split}
}

func (r *reader) readContainers(p *podspec.Pod) []sharing.Request {
	var out []sharing.Request
	for path, c := range containersOf(p) {
		if req, ok := r.readContainer(path, c); ok {
			out = append(out, req)
		}
	}
	if n := len(out); n > MostAsking {
		r.addMistake("spec", fmt.Sprintf("%d containers ask for devices, want at most %d", n, MostAsking))
	}
	return out
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
	Rules
	namespace string
	// split says that amounts are totals of a container's devices, see amountPerDevice.
	split    bool
	mistakes []Mistake
}

func (r *reader) addMistake(path, message string) {
	r.mistakes = append(r.mistakes, Mistake{Path: path, Message: message})
}
