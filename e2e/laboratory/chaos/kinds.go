// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/workload"
)

// Order is what a user creates at a time.
type Order struct {
	Kind string
	// Pods are bare pods. Those of a gang are placed together or not at all.
	Pods []*corev1.Pod
	Gang bool
	// Controlled makes pods anew until they have done what they should.
	Controlled Controlled
}

// Controlled is an object whose controller makes pods: a Job or a Deployment.
type Controlled interface {
	// Kind and Name are for people.
	Kind() string
	Name() string
	Create(context.Context, kubernetes.Interface) error
	// Done reports whether its pods have done what they should, and whether some of them failed.
	Done(context.Context, kubernetes.Interface) (done, failed bool, err error)
	Delete(context.Context, kubernetes.Interface, metav1.DeleteOptions) error
	// Wake has its controller look at it again.
	Wake(context.Context, kubernetes.Interface) error
}

// modeKey is an annotation that users write.
const modeKey = "volcano.sh/vgpu-mode"

// order draws what a user creates.
func order(name string, r *rand.Rand) Order {
	kind := draw(r, []chance[string]{
		{"hami-core", 5}, {"mig", 3}, {"mps", 3}, {"time-slicing", 2}, {"any mode", 3}, {"whole device", 1},
		{"several containers", 3}, {"sidecar", 2}, {"gang", 2}, {"job", 4}, {"deployment", 2},
		{"important share", 5}, {"important devices", 3}, {"important gang", 2},
	})
	o := Order{Kind: kind}
	switch kind {
	case "whole device":
		o.Pods = []*corev1.Pod{wholeDevices(name, 1, r).Build()}
	case "important devices":
		o.Pods = []*corev1.Pod{wholeDevices(name, 1+r.Int64N(2), r).Build()}
	case "important share":
		o.Pods = []*corev1.Pod{largeShare(name, r).Build()}
	case "several containers":
		o.Pods = []*corev1.Pod{several(name, r).Build()}
	case "sidecar":
		ask := workload.Ask{Number: 1, Memory: amount(r)}
		o.Pods = []*corev1.Pod{pod(name).Annotate(modeKey, "hami-core").
			Sidecar("beside", workload.Ask{Number: 1, Memory: 300}, "alloc", "200", "expect", "ok", "forever").
			App("main", ask, limited(ask.Memory, r)...).Build()}
	case "gang":
		o.Gang = true
		for i := range 3 {
			p := shared(fmt.Sprintf("%s-%d", name, i), "hami-core", r).Annotate(workload.GroupKey, name)
			o.Pods = append(o.Pods, p.Build())
		}
	case "important gang":
		o.Gang = true
		for i := range 2 {
			p := wholeDevices(fmt.Sprintf("%s-%d", name, i), 1, r).Annotate(workload.GroupKey, name)
			o.Pods = append(o.Pods, p.Build())
		}
	case "job":
		o.Controlled = newJob(name, shared(name, "", r).Build())
	case "deployment":
		o.Controlled = newDeployment(name, amount(r))
	case "any mode":
		o.Pods = []*corev1.Pod{shared(name, "", r).Build()}
	default:
		o.Pods = []*corev1.Pod{shared(name, kind, r).Build()}
	}
	for _, p := range o.Pods {
		if strings.HasPrefix(kind, "important") {
			p.Spec.PriorityClassName = importantClass
		}
		grace := draw(r, graces())
		p.Spec.TerminationGracePeriodSeconds = &grace
	}
	return o
}

// pod begins a pod of the CUDA client.
func pod(name string) *workload.Pod { return workload.New(name, sandbox.ImageCUDAClient).AsUser(1000) }

// wholeDevices is a pod that has devices to itself.
func wholeDevices(name string, devices int64, r *rand.Rand) *workload.Pod {
	return pod(name).Annotate(modeKey, "hami-core").
		App("main", workload.Ask{Number: devices, Cores: 100}, "info", "alloc", "70000", "expect", "ok", "sleep", seconds(r))
}

// largeShare is a pod with so large a share that it seldom finds one that is free.
func largeShare(name string, r *rand.Rand) *workload.Pod {
	p, ask := pod(name), workload.Ask{Number: 1, Memory: 25_000 + r.Int64N(50_000)}
	mode := draw(r, []chance[string]{{"hami-core", 3}, {"mps", 2}, {"mig", 1}, {"", 3}})
	if mode != "" {
		p.Annotate(modeKey, mode)
	}
	if mode == "mig" { // the one device that is always in it is cut as its resident wants it
		ask.Memory = min(ask.Memory, 9_000)
	}
	return p.App("main", ask, limited(ask.Memory, r)...)
}

// shared is a pod with one share, in a mode or in any.
func shared(name, mode string, r *rand.Rand) *workload.Pod {
	p, ask := pod(name), workload.Ask{Number: 1, Memory: amount(r)}
	if mode != "" {
		p.Annotate(modeKey, mode)
	}
	if mode == "hami-core" && r.IntN(3) == 0 {
		ask.Cores = 1 + r.Int64N(20)
	}
	return p.App("main", ask, limited(ask.Memory, r)...)
}

// several is a pod with an init container, and two beside each other, one with two devices.
func several(name string, r *rand.Rand) *workload.Pod {
	ask := workload.Ask{Number: 1, Memory: amount(r), Cores: 2}
	return pod(name).Annotate(modeKey, "hami-core").
		Init("first", workload.Ask{Number: 1, Memory: ask.Memory + 50}, "info", "alloc", "100", "expect", "ok").
		App("a", ask, limited(ask.Memory, r)...).
		App("b", workload.Ask{Number: 2, Memory: 100}, "info", "alloc", "100", "expect", "ok", "alloc", "2", "expect", "oom")
}

// most is more than any device has. Nothing less is refused in all modes: a partition may be nearly
// as large as its device, and mode time-slicing limits nothing.
const most = 100_000

// limited takes nearly all of the share's memory and then tries again and again to get more, until
// it gives everything back and takes it again. Each step has to end as it should.
func limited(mib int64, r *rand.Rand) []string {
	steps := []string{"info", "alloc", workload.MiB(mib - 100), "expect", "ok"}
	for range 1 + r.IntN(6) {
		steps = append(steps, "alloc", workload.MiB(most), "expect", "oom", "sleep", "1")
	}
	return append(steps, "free", "alloc", workload.MiB(mib-100), "expect", "ok")
}

// graces are in seconds. The client does not listen to SIGTERM, so that it stays for so long.
func graces() []chance[int64] { return []chance[int64]{{0, 3}, {2, 1}, {5, 1}} }

func amount(r *rand.Rand) int64 { return 200 + r.Int64N(8000) }

func seconds(r *rand.Rand) string { return strconv.Itoa(1 + r.IntN(6)) }
