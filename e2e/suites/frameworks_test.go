// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/laboratory/frameworks"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// frameworksRoot is where the manifests of docs/frameworks.md are.
const frameworksRoot = "../../manifests/frameworks"

// gangs are the manifests of which all pods start or none, with the number of their pods. Three of
// these pods ask for one device each.
func gangs() map[string]int {
	return map[string]int{
		"volcano-job": 4, "deployment": 3, "job": 3, "jobset": 4, "pytorchjob": 3, "trainjob": 3, "raycluster": 4,
	}
}

// testFrameworks runs the pods that others' operators make of the manifests of docs/frameworks.md.
func testFrameworks(t *testing.T, w *world) {
	files, err := filepath.Glob(filepath.Join(frameworksRoot, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	w.defineKinds(t)
	part(t, "gates", w.gatedPodsHoldNothing)
	part(t, "kueue", w.kueueCountsWhatIsHeld)
	part(t, "held_in_the_queue", w.groupsThatExceedTheQueueSayWhy)
	room := w.roomForTwo(t)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		switch pods, isGang := gangs()[name]; {
		case isGang:
			part(t, name, func(t *testing.T) { w.allOrNone(t, room, name, pods) })
		case name == "workflow":
			part(t, name, func(t *testing.T) { w.stepByStep(t, room) })
		case name != "kueue" && name != "fluid": // suite fluid runs that
			t.Errorf("no test runs %s", file)
		}
	}
}

// room is a node on which two more shares of the manifests fit, and a third one without the plug.
// What is free on all devices together would do for six: who counts sums lets the gangs in.
type room struct {
	user *user.User
	plug *corev1.Pod
}

// share is what each container of the manifests has of a device, in MiB.
const share = 30000

// roomForTwo leaves a share on each of two devices, and two thirds of one on the others.
func (w *world) roomForTwo(t *testing.T) *room {
	t.Helper()
	ctx, u := w.user(t, "frameworks-room", 3*time.Minute)
	var plug *corev1.Pod
	for i := range gpus {
		free := int64(share * 2 / 3)
		if i < 2 {
			free = share + 100
		}
		p := pod(fmt.Sprintf("filler-%d", i)).App("main", workload.Ask{Number: 1, Memory: memoryMiB - free}, "forever").Build()
		if err := u.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
		plug = p
	}
	for i := range gpus {
		if _, err := u.WaitRunning(ctx, fmt.Sprintf("filler-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	return &room{user: u, plug: plug}
}

// open makes room for a third share until the test has ended and its pods are gone.
func (r *room) open(ctx context.Context, t *testing.T) {
	t.Helper()
	if err := r.user.Delete(ctx, r.plug.Name); err != nil {
		t.Fatal(err)
	}
}

// close fills that room.
func (r *room) close(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
	defer cancel()
	err := r.user.Create(ctx, r.plug.DeepCopy())
	if err == nil {
		_, err = r.user.WaitRunning(ctx, r.plug.Name)
	}
	if err != nil {
		t.Errorf("fill the room for a third share: %v", err)
	}
}

// allOrNone starts the pods of a manifest where two of three shares fit: none starts, and a pod
// says why. All start when there is room, and each container has what it asks for.
func (w *world) allOrNone(t *testing.T, room *room, name string, count int) {
	opened := false
	t.Cleanup(func() { // after the pods are gone
		if opened {
			room.close(t)
		}
	})
	ctx, u := w.user(t, "framework-"+name, 2*time.Minute)
	objects := manifest(t, name)
	for _, o := range objects {
		w.make(ctx, t, u, o, objects)
	}
	names := podNames(waitPods(ctx, t, u, count))
	said, err := u.WaitAnyEvent(ctx, names, "devices fit")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("with room for two of three: %s", said)
	for _, p := range waitPods(ctx, t, u, count) {
		if p.Spec.NodeName != "" || p.Annotations[wire.PodPlacement] != "" {
			t.Errorf("pod %s of a gang that does not fit is on node %q with placement %q", p.Name, p.Spec.NodeName, p.Annotations[wire.PodPlacement])
		}
	}
	opened = true
	room.open(ctx, t)
	holds(ctx, t, u, names, 3)
}

// waitPods waits until there are so many pods.
func waitPods(ctx context.Context, t *testing.T, u *user.User, count int) []corev1.Pod {
	t.Helper()
	for {
		pods, err := u.Pods(ctx)
		if err == nil && len(pods) == count {
			return pods
		}
		if ctx.Err() != nil {
			t.Fatalf("there are %d pods, want %d: %v", len(pods), count, err)
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

func podNames(pods []corev1.Pod) []string {
	names := make([]string, len(pods))
	for i := range pods {
		names[i] = pods[i].Name
	}
	return names
}

// holds waits until pods have done their work, and expects that each container had what it asks
// for, the framework counts that, and all together have so many shares.
func holds(ctx context.Context, t *testing.T, u *user.User, names []string, want int) {
	t.Helper()
	total := 0
	for _, name := range names {
		p, shares := worked(ctx, t, u, name)
		total += len(shares)
		for _, s := range shares {
			if s.Memory != share*sharing.MiB {
				t.Errorf("pod %s: a share of %d bytes, want %d MiB", name, s.Memory, share)
			}
		}
		counted(ctx, t, u, p)
	}
	if total != want {
		t.Errorf("the pods hold %d shares, want %d", total, want)
	}
}

// worked waits until every container of a pod has checked what it got, and returns the shares.
func worked(ctx context.Context, t *testing.T, u *user.User, name string) (*corev1.Pod, []sharing.Share) {
	t.Helper()
	p, err := u.Get(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	asks := false
	for _, c := range slices.Concat(p.Spec.InitContainers, p.Spec.Containers) {
		number := c.Resources.Limits[workload.Number]
		asks = asks || !number.IsZero()
		if _, err := u.WaitLog(ctx, name, c.Name, frameworks.Checked(&c)); err != nil {
			t.Error(err)
		}
	}
	if p.Spec.RestartPolicy == corev1.RestartPolicyAlways {
		p, err = u.WaitRunning(ctx, name)
	} else if p, err = u.WaitDone(ctx, name); err == nil && p.Status.Phase != corev1.PodSucceeded {
		t.Errorf("pod %s: %s %s %s", name, p.Status.Phase, p.Status.Reason, p.Status.Message)
	}
	if err != nil {
		t.Fatal(err)
	}
	if restarts(p) != 0 {
		t.Errorf("pod %s: a container saw what it must not, and was started again", name)
	}
	if !asks {
		if text := p.Annotations[wire.PodPlacement]; text != "" {
			t.Errorf("pod %s asks for nothing, yet has placement %s", name, text)
		}
		return p, nil
	}
	placement, err := user.Placement(p)
	if err != nil {
		t.Fatal(err)
	}
	var shares []sharing.Share
	for _, c := range placement.Containers {
		shares = append(shares, c.Shares...)
	}
	return p, shares
}

// counted expects that what a framework tells a container of its devices is what it sees.
func counted(ctx context.Context, t *testing.T, u *user.User, p *corev1.Pod) {
	t.Helper()
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		log, err := u.Log(ctx, p.Name, c.Name)
		if err != nil {
			t.Fatal(err)
		}
		sees := "0"
		if _, rest, found := strings.Cut(log, "info devices="); found {
			sees, _, _ = strings.Cut(rest, "\n")
		}
		for _, e := range c.Env {
			if _, gpus, isRay := strings.Cut(e.Value, "--num-gpus="); isRay && e.Name == "KUBERAY_GEN_RAY_START_CMD" && strings.Fields(gpus)[0] != sees {
				t.Errorf("pod %s: Ray is started with %q and sees %s devices", p.Name, e.Value, sees)
			} else if !isRay && e.Name == "KUBERAY_GEN_RAY_START_CMD" {
				t.Errorf("pod %s: Ray is not told how many devices there are: %q", p.Name, e.Value)
			}
			if e.Name == "PET_NPROC_PER_NODE" && e.Value != sees {
				t.Errorf("pod %s: it starts %s processes and sees %s devices", p.Name, e.Value, sees)
			}
		}
	}
}
