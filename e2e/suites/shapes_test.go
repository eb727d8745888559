// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// heldToShare are steps that only a container that is held to 1000 MiB gets through.
func heldToShare() []string {
	return []string{"alloc", "900", "expect", "ok", "alloc", "200", "expect", "oom", "free", "alloc", "900", "expect", "ok"}
}

// shapesOfPods change a pod as people's charts and policies do. Each of them is held to its share.
func shapesOfPods() map[string]func(*corev1.Pod) {
	yes, no, user := true, false, int64(1000)
	empty := func(path string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "empty", MountPath: path}}
		}
	}
	secured := func(s corev1.SecurityContext) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = &s }
	}
	return map[string]func(*corev1.Pod){
		"restricted": secured(corev1.SecurityContext{
			RunAsUser: &user, RunAsNonRoot: &yes, AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}),
		"read-only-root":     secured(corev1.SecurityContext{ReadOnlyRootFilesystem: &yes}),
		"own-tmp":            empty("/tmp"),
		"own-shared-folder":  empty("/tmp/vgpu"),
		"own-library-folder": empty("/usr/local/vgpu"),
		"host-pid":           func(p *corev1.Pod) { p.Spec.HostPID = true },
		"host-ipc":           func(p *corev1.Pod) { p.Spec.HostIPC = true },
		"host-network":       func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"own-preload": func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "LD_PRELOAD", Value: "/nowhere/libjemalloc.so"}}
		},
		"crash-loop": func(p *corev1.Pod) {
			empty("/work")(p)
			p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
			p.Spec.Containers[0].Command = []string{"sh", "-c", "echo began >> /work/lives; cudaclient " + strings.Join(heldToShare(), " ") +
				" || exit 9; test $(grep -c began /work/lives) -ge 3"}
		},
	}
}

// testShapes runs pods as people write them: each is held to its share, whatever its containers may
// write, whoever they run as and whatever they see.
func testShapes(t *testing.T, w *world) {
	ctx, u := w.user(t, "shapes", 3*time.Minute)
	ask := workload.Ask{Number: 1, Memory: 1000}
	shapes := shapesOfPods()
	for name, change := range shapes {
		if err := u.Create(ctx, pod(name).App("main", ask, heldToShare()...).Edit(change).Build()); err != nil {
			t.Fatal(err)
		}
	}
	shared := pod("shared-pids").App("main", ask, heldToShare()...).App("second", ask, heldToShare()...)
	shared.Edit(func(p *corev1.Pod) { yes := true; p.Spec.ShareProcessNamespace = &yes })
	if err := u.Create(ctx, shared.Build()); err != nil {
		t.Fatal(err)
	}
	for name := range shapes {
		succeeds(ctx, t, u, name)
	}
	succeeds(ctx, t, u, "shared-pids")
	w.debugged(ctx, t, u)
}

// debugged looks into a pod as `kubectl debug` does: the new container is no part of what was
// placed, and gets neither device nor driver.
func (w *world) debugged(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	if err := u.Create(ctx, pod("debugged").App("main", workload.Ask{Number: 1, Memory: 1000}, "alloc", "900", "expect", "ok", "forever").Build()); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitRunning(ctx, "debugged"); err != nil {
		t.Fatal(err)
	}
	debugger := corev1.EphemeralContainer{TargetContainerName: "main", EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debugger", Image: sandbox.ImageCUDAClient, ImagePullPolicy: corev1.PullNever,
		Command: []string{"sh", "-c", "ls /dev; cudaclient alloc 5000 expect ok && echo has a device; echo looked; sleep 1000"},
	}}
	if _, err := u.Debug(ctx, "debugged", debugger); err != nil {
		t.Fatal(err)
	}
	log, err := u.WaitLog(ctx, "debugged", "debugger", "looked")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(log, "nvidia") || strings.Contains(log, "has a device") {
		t.Errorf("a container that asks for nothing says:\n%s", log)
	}
	runsOn(ctx, t, u, "debugged")
}
