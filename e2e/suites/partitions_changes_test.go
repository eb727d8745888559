// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/report"
	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing/wire"
)

// A partition that an administrator made by hand is used where it fits, and stands
// in nobody's way where it does not.
func testMadeByHand(t *testing.T, w *world) {
	ctx, u := w.user(t, "by-hand", time.Minute)
	first := started(ctx, t, u, ask("first", 5000))
	share := partitionOf(t, first)
	if err := u.Delete(ctx, "first"); err != nil {
		t.Fatal(err)
	}
	index := w.indexOf(ctx, t, string(share.Device))
	w.clearDevice(ctx, t, index)
	if _, err := w.cluster.FakeGPU(ctx, "create", index, share.Partition.Profile, fmt.Sprint(share.Partition.Start)); err != nil {
		t.Fatal(err)
	}
	// From here on the driver makes no other: 999 is NVML_ERROR_UNKNOWN.
	if _, err := w.cluster.FakeGPU(ctx, "fail", "nvmlDeviceCreateGpuInstanceWithPlacement", "always", "999"); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = w.cluster.FakeGPU(context.WithoutCancel(ctx), "mend") }()
	again := started(ctx, t, u, ask("again", 5000))
	if got := partitionOf(t, again); got != share {
		t.Errorf("the pod has %+v, want %+v, which is there already", got, share)
	}
	if _, err := w.located(ctx, u, again); err != nil {
		t.Error(err)
	}
}

// indexOf is the index of a device in fakegpuctl's words.
func (w *world) indexOf(ctx context.Context, t *testing.T, uuid string) string {
	t.Helper()
	show, err := w.cluster.FakeGPU(ctx, "show")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(show, "\n") {
		if strings.HasPrefix(line, "device ") && report.Value(line, "uuid") == uuid {
			return report.Value(line, "index")
		}
	}
	t.Fatalf("no device %s:\n%s", uuid, show)
	return ""
}

// clearDevice destroys all partitions of an idle device by hand.
func (w *world) clearDevice(ctx context.Context, t *testing.T, index string) {
	t.Helper()
	show, err := w.cluster.FakeGPU(ctx, "show")
	if err != nil {
		t.Fatal(err)
	}
	device := ""
	for _, line := range strings.Split(show, "\n") {
		switch {
		case strings.HasPrefix(line, "device "):
			device = report.Value(line, "index")
		case strings.HasPrefix(line, "  instance ") && device == index:
			if out, err := w.cluster.FakeGPU(ctx, "destroy", index, report.Value(line, "gi")); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	}
}

// No partition survives a reboot. Every container gets its own again, at the same
// place, before it starts.
func testReboot(t *testing.T, w *world) {
	ctx, u := w.user(t, "reboot", 3*time.Minute)
	const pods = 6
	before := map[string]string{}
	shape := func(i int) *workload.Pod {
		return ask(fmt.Sprintf("p%d", i), []int64{5000, 9000, 19000}[i%3]).Edit(func(p *corev1.Pod) {
			p.Spec.RestartPolicy = corev1.RestartPolicyAlways
		})
	}
	for i := range pods {
		name := fmt.Sprintf("p%d", i)
		p := started(ctx, t, u, shape(i))
		uuids, err := w.located(ctx, u, p)
		if err != nil {
			t.Fatal(err)
		}
		before[name] = uuids[0]
	}
	if err := w.cluster.RebootGPUs(ctx); err != nil {
		t.Fatal(err)
	}
	begin, anew := time.Now(), 0
	for i := range pods {
		name := fmt.Sprintf("p%d", i)
		uuid := before[name]
		p, err := u.Wait(ctx, name, "running again", func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses
			return len(s) == 1 && s[0].RestartCount > 0 && s[0].State.Running != nil || p.Status.Reason == "UnexpectedAdmissionError"
		})
		if err == nil && p.Status.Reason == "UnexpectedAdmissionError" {
			// The kubelet ends pods that it looks at before a device plugin has
			// registered with it, whoever's they are; a controller makes them anew.
			anew++
			if err = u.Delete(ctx, name); err == nil {
				p = started(ctx, t, u, shape(i))
			}
		}
		if err == nil {
			err = reported(ctx, u, p)
		}
		var uuids []string
		if err == nil {
			uuids, err = w.located(ctx, u, p)
		}
		if err != nil {
			t.Error(err)
		} else if uuids[0] == uuid {
			t.Errorf("pod %s still runs on %s, which the reboot took", name, uuid)
		}
	}
	t.Logf("%d pods had their partitions again after %.0f s, %d of them made anew", pods, time.Since(begin).Seconds(), anew)
}

// doubles is a geometry that is not among the defaults.
const doubles = `nvidia:
  knownMigGeometries:
    - models: ["A100-SXM4-80GB"]
      allowedGeometries:
        - group: doubles
          geometries:
            - {name: 1g.20gb, memory: 19968, count: 4}
`

// An edited geometry is used by the next pod without any restart, and who runs is
// left alone.
func testEditedGeometry(t *testing.T, w *world) {
	ctx, u := w.user(t, "geometry", 3*time.Minute)
	old := started(ctx, t, u, ask("old", 15000).Annotate(wire.UserUseModels, "A100"))
	if got := partitionOf(t, old).Partition.Profile; got != "2g.20gb" {
		t.Errorf("under the default geometries 15000 MiB are served by %s, want 2g.20gb", got)
	}
	uuids, err := w.located(ctx, u, old)
	if err != nil {
		t.Fatal(err)
	}
	hash := w.inventory(ctx, t).GeometryHash
	if err := u.ConfigureDevices(ctx, doubles); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.defaultSettings(t, u) })
	begin := time.Now()
	for w.inventory(ctx, t).GeometryHash == hash && ctx.Err() == nil {
		sleep(ctx, 50*time.Millisecond)
	}
	young := started(ctx, t, u, ask("young", 15000).Annotate(wire.UserUseModels, "A100"))
	t.Logf("a pod ran under the new geometry %.1f s after the edit", time.Since(begin).Seconds())
	if got := partitionOf(t, young).Partition.Profile; got != "1g.20gb" {
		t.Errorf("under the edited geometry 15000 MiB are served by %s, want 1g.20gb", got)
	}
	if _, err := w.located(ctx, u, young); err != nil {
		t.Error(err)
	}
	if still, err := w.located(ctx, u, old); err != nil || still[0] != uuids[0] {
		t.Errorf("the pod that ran before has %v (%v), had %v", still, err, uuids)
	}
}

// A pod that was placed under geometries which changed before it started is told,
// evicted, and placed anew under those in force.
func testOldGeometry(t *testing.T, w *world) {
	ctx, u := w.user(t, "old-geometry", 3*time.Minute)
	hash := w.inventory(ctx, t).GeometryHash
	// While the kubelet does nothing a pod can be placed and does not start.
	thaw, err := w.cluster.Freeze(sandbox.Kubelet)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = thaw() }() // a frozen one could not be stopped
	w.replicate(ctx, t, u, ask("late", 15000).Annotate(wire.UserUseModels, "A100").Build())
	first := w.onlyPod(ctx, t, u, func(p *corev1.Pod) bool { return p.Spec.NodeName != "" })
	if got := partitionOf(t, first).Partition.Profile; got != "2g.20gb" {
		t.Errorf("placed on %s before the edit, want 2g.20gb", got)
	}
	if err := u.ConfigureDevices(ctx, doubles); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.defaultSettings(t, u) })
	for w.inventory(ctx, t).GeometryHash == hash && ctx.Err() == nil {
		sleep(ctx, 50*time.Millisecond)
	}
	if err := thaw(); err != nil {
		t.Fatal(err)
	}
	if err := w.waitEvent(ctx, "placed anew", "geometries"); err != nil {
		t.Errorf("no event tells why the pod goes: %v", err)
	}
	second := w.onlyPod(ctx, t, u, func(p *corev1.Pod) bool {
		return p.UID != first.UID && p.Status.Phase == corev1.PodRunning
	})
	if err := reported(ctx, u, second); err != nil {
		t.Fatal(err)
	}
	if _, err := w.located(ctx, u, second); err != nil {
		t.Error(err)
	}
	if got := partitionOf(t, second).Partition.Profile; got != "1g.20gb" {
		t.Errorf("placed anew on %s, want 1g.20gb", got)
	}
}

// replicate lets a ReplicaSet make one such pod, and again when it goes, until t ends. Its pods
// have the label app with the name of the given one.
func (w *world) replicate(ctx context.Context, t *testing.T, u *user.User, p *corev1.Pod) {
	t.Helper()
	one, labels := int32(1), map[string]string{"app": p.Name}
	sets := w.cluster.Client().AppsV1().ReplicaSets(u.Namespace())
	p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	_, err := sets.Create(ctx, &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name},
		Spec: appsv1.ReplicaSetSpec{
			Replicas: &one,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: p.Annotations}, Spec: p.Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sets.Delete(context.Background(), p.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// onlyPod waits until one pod of the namespace satisfies the condition.
func (w *world) onlyPod(ctx context.Context, t *testing.T, u *user.User, want func(*corev1.Pod) bool) *corev1.Pod {
	t.Helper()
	for {
		pods, err := u.Pods(ctx)
		for i := range pods {
			if want(&pods[i]) {
				return &pods[i]
			}
		}
		if err != nil || ctx.Err() != nil {
			t.Fatalf("no pod is as it should be: %v, %v\n%+v", err, ctx.Err(), pods)
		}
		sleep(ctx, 100*time.Millisecond)
	}
}

// defaultSettings brings back what holds without a ConfigMap of devices.
func (w *world) defaultSettings(t *testing.T, u *user.User) {
	ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
	defer cancel()
	if err := u.ConfigureDevices(ctx, "nvidia: {}\n"); err != nil {
		t.Error(err)
	}
}
