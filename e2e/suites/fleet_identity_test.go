// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/workload"
)

// fleetPods is how many pods are created at once under Volcano's scheduler.
const fleetPods = 40

// legacyShapes are kinds of pods that Volcano's scheduler places. It does not look at init
// containers, and finds no node for a percentage of memory, since none offers that resource.
func legacyShapes() []func(name string, i int64) *workload.Pod {
	see := []string{"info", "env"}
	return []func(string, int64) *workload.Pod{
		func(n string, i int64) *workload.Pod { // one container
			return fleetPod(n).App("main", workload.Ask{Number: 1, Memory: 100 + i, Cores: 1 + i%9}, see...)
		},
		func(n string, i int64) *workload.Pod { // two GPU containers with different limits
			return fleetPod(n).App("a", workload.Ask{Number: 1, Memory: 110 + i}, see...).App("b", workload.Ask{Number: 1, Memory: 210 + i, Cores: 7}, see...)
		},
		func(n string, i int64) *workload.Pod { // a plain container first
			return fleetPod(n).Plain("plain", "true").App("gpu", workload.Ask{Number: 1, Memory: 120 + i}, see...)
		},
		func(n string, i int64) *workload.Pod { // memory only: the webhook adds the number
			return fleetPod(n).App("main", workload.Ask{Memory: 130 + i}, see...)
		},
		// Compute only, the first: the memory is the whole device's.
		func(n string, i int64) *workload.Pod {
			if i >= 8 {
				return fleetPod(n).App("main", workload.Ask{Memory: 70 + i, Cores: 4 + i%3}, see...)
			}
			return fleetPod(n).App("main", workload.Ask{Cores: 20 + i%60}, see...)
		},
		func(n string, i int64) *workload.Pod { // two devices in one container
			return fleetPod(n).App("main", workload.Ask{Number: 2, Memory: 150 + i, Cores: 4}, see...)
		},
		func(n string, i int64) *workload.Pod { // three containers, two of which ask
			return fleetPod(n).App("a", workload.Ask{Number: 1, Memory: 90 + i}, see...).Plain("plain", "true").App("b", workload.Ask{Number: 2, Memory: 95 + i}, see...)
		},
		func(n string, i int64) *workload.Pod { // a whole device, the first; there are not many
			if i >= 8 {
				return fleetPod(n).App("main", workload.Ask{Number: 1, Memory: 80 + i, Cores: 2}, see...)
			}
			return fleetPod(n).App("main", workload.Ask{Number: 1}, see...)
		},
	}
}

// fortyPods are created at once on the real node: every container sees the device and the limits
// that Volcano's scheduler wrote down for it, and that scheduler is told.
func (f *fleet) fortyPods(ctx context.Context, t *testing.T) {
	t.Helper()
	kinds := legacyShapes()
	names, errs := make([]string, fleetPods), make([]error, fleetPods)
	var all sync.WaitGroup
	for i := range fleetPods {
		names[i] = fmt.Sprintf("stock-%02d-shape%d", i, i%len(kinds))
		p := kinds[i%len(kinds)](names[i], int64(i)).Edit(on(f.nodes[0])).Build()
		all.Go(func() { errs[i] = f.user.Create(ctx, p) })
	}
	all.Wait()
	checked := 0
	for i := range names {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		p := f.placedAndDone(ctx, t, names[i], func(name string) *corev1.Pod {
			return kinds[i%len(kinds)](name, int64(i)).Edit(on(f.nodes[0])).Build()
		})
		names[i] = p.Name
		if p.Status.Phase != corev1.PodSucceeded {
			said, _ := f.user.Said(ctx, p.Name)
			t.Errorf("pod %s: %s %s\n%s", p.Name, p.Status.Phase, p.Status.Reason, strings.Join(said, "\n"))
			continue
		}
		if _, ours := p.Annotations["volcano.sh/vgpu-placement"]; ours {
			t.Errorf("pod %s has a placement of our scheduler, which does not run", p.Name)
		}
		checked += f.sawWhatItWasGiven(ctx, t, p, true)
	}
	t.Logf("%d pods, %d containers: devices and limits are those that Volcano's scheduler wrote down", len(names), checked)
	f.confirmed(ctx, t, names)
	noAdmissionError(ctx, t, f.user)
}

// placedAndDone waits until a pod has ended. Volcano's scheduler 1.14 binds a pod without devices
// when those went to another one in the same session. Our device plugin starts none of its
// containers; the pod is made anew, as a controller would do.
func (f *fleet) placedAndDone(ctx context.Context, t *testing.T, name string, again func(name string) *corev1.Pod) *corev1.Pod {
	t.Helper()
	for {
		p, err := f.user.Wait(ctx, name, "done or bound without devices", func(p *corev1.Pod) bool {
			return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed ||
				p.Spec.NodeName != "" && p.Annotations["volcano.sh/vgpu-ids-new"] == ""
		})
		if err != nil {
			t.Fatal(err)
		}
		if p.Annotations["volcano.sh/vgpu-ids-new"] != "" {
			return p
		}
		said, err := f.user.WaitEvent(ctx, name, "no scheduler gave the pod devices")
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("Volcano's scheduler bound %s without devices; %s", name, said)
		if err := f.user.Delete(ctx, name); err != nil {
			t.Fatal(err)
		}
		name += "-again"
		if err := f.user.Create(ctx, again(name)); err != nil {
			t.Fatal(err)
		}
	}
}

// confirmed waits until Volcano's scheduler was told of each pod that it has its devices, as by
// Volcano's device plugin.
func (f *fleet) confirmed(ctx context.Context, t *testing.T, names []string) {
	t.Helper()
	for _, name := range names {
		_, err := f.user.Wait(ctx, name, "confirmed", func(p *corev1.Pod) bool {
			a := p.Annotations
			return a["volcano.sh/bind-phase"] == "success" && a["volcano.sh/devices-to-allocate"] == "" && a["volcano.sh/vgpu-time"] == "18446744073709551615"
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// restartable starts a pod on the real node whose container is started again when it ends.
func (f *fleet) restartable(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	// The number of seconds tells its process from all others.
	p := f.run(ctx, t, fleetPod(name).App("main", workload.Ask{Number: 1, Memory: 77, Cores: 3}, "info", "env", "sleep", sleepOf(name)).Edit(on(f.nodes[0])).
		Edit(func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways }))
	f.sawWhatItWasGiven(ctx, t, p, f.nodes[0].legacy == nil)
}

func sleepOf(name string) string { return fmt.Sprintf("%d", 70000+len(name)) }

// restarts kills the container of a pod: its next life has the same devices and limits, whichever
// device plugin the node has by now.
func (f *fleet) restarts(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	kill := `for p in /proc/[0-9]*; do tr "\0" " " < $p/cmdline | grep -q "^/usr/bin/cudaclient info env sleep ` + sleepOf(name) + `" && kill -9 ${p#/proc/}; done; true`
	if out, err := f.cluster.Run(ctx, "sh", "-c", kill); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p, err := f.user.Wait(ctx, name, "restarted", func(p *corev1.Pod) bool {
		return p.Status.ContainerStatuses[0].RestartCount > 0 && p.Status.ContainerStatuses[0].State.Running != nil
	})
	if err != nil {
		t.Fatal(err)
	}
	f.sawWhatItWasGiven(ctx, t, p, false)
	t.Logf("the container of %s was started again %.0f s after its first life began, with what it had", name,
		time.Since(p.Status.StartTime.Time).Seconds())
}
