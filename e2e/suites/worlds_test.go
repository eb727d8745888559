// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// testWorlds is nodes that are not as the product wants them. None of them gives a container more
// than its share.
func testWorlds(t *testing.T, w *world) {
	t.Run("images", w.imagesAsTheyAre)
	part(t, "kubelet_restart", w.overAKubeletRestart)
	t.Run("no_exec", w.stateThatRunsNothing)
	t.Run("other_loader", w.pastTheLibrary)
	t.Run("no_cdi", w.withoutCDI)
	part(t, "unasked_runtime", w.withoutCDIAndUnasked)
}

// pastTheLibrary is a program that is started by a loader which reads no /etc/ld.so.preload:
// nothing holds it to its share. It is ended before it has run for long, and so is the next one.
func (w *world) pastTheLibrary(t *testing.T) {
	ctx, u := w.user(t, "other-loader", 2*time.Minute)
	ask := workload.Ask{Number: 1, Memory: 1000}
	loose := func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
		p.Spec.Containers[0].Command = []string{sandbox.OtherLoader, "/usr/bin/cudaclient", "alloc", "5000", "expect", "ok", "forever"}
	}
	beside := pod("beside").App("main", ask, "alloc", "900", "expect", "ok", "alloc", "200", "expect", "oom", "forever").Build()
	whole := pod("whole").App("main", workload.Ask{Number: 1}).Edit(loose).Build()
	for _, p := range []*corev1.Pod{beside, whole, pod("loose").App("main", ask).Edit(loose).Build()} {
		if err := u.Create(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := u.WaitEvent(ctx, "loose", "ProcessUnlimited", "uses device GPU-", "the container was ended"); err != nil {
		t.Fatal(err)
	}
	p, err := u.Wait(ctx, "loose", "a container that was ended", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && ending(&p.Status.ContainerStatuses[0]) != nil
	})
	if err != nil {
		t.Fatal(err)
	}
	end := ending(&p.Status.ContainerStatuses[0])
	if log, _ := u.Log(ctx, "loose", "main"); end.ExitCode != 137 {
		t.Errorf("it ended with exit code %d, as if it had been held to its share:\n%s", end.ExitCode, log)
	}
	t.Logf("a container past the library ran for %s", end.FinishedAt.Sub(end.StartedAt.Time))
	runsOn(ctx, t, u, "beside", "whole")
}

// runsOn expects pods to run that were never started again.
func runsOn(ctx context.Context, t *testing.T, u *user.User, names ...string) {
	t.Helper()
	for _, name := range names {
		if p, err := u.WaitRunning(ctx, name); err != nil {
			t.Errorf("%s does not run on: %v", name, err)
		} else if restarts(p) != 0 {
			t.Errorf("%s does not run on: it was started again %d times", name, restarts(p))
		}
	}
}

// readCDI is how containerd is told to read CDI specifications.
const readCDI = "enable_cdi = "

// withoutCDI is a containerd that reads no CDI specifications, as 1.7 does by default: it starts
// containers all the same, without anything that they are given. The device plugin says so as soon
// as it can ask containerd.
func (w *world) withoutCDI(t *testing.T) {
	ctx, u := w.user(t, "no-cdi", 4*time.Minute)
	w.withCDIOff(ctx, t, u)
	if err := u.Create(ctx, pod("asked").App("main", workload.Ask{Number: 1, Memory: 1000}, "forever").Build()); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitEvent(ctx, "asked", "Unhealthy"); err != nil {
		t.Error(err)
	}
	runsOn(ctx, t, u, "before")
}

// withoutCDIAndUnasked is the same where containerd cannot be asked, as a runtime that says nothing
// of itself: the first container that was started so is ended.
func (w *world) withoutCDIAndUnasked(t *testing.T) {
	ctx, u := w.user(t, "unasked-runtime", 4*time.Minute)
	w.withCDIOff(ctx, t, u)
	w.upgrade(ctx, t, "devicePlugin.runtimeSockets={/nowhere}")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*2*time.Minute)
		defer cancel()
		w.upgrade(ctx, t)
	})
	w.waitHealthy(ctx, t, gpus)
	w.bareOnesAreEnded(ctx, t, u)
	runsOn(ctx, t, u, "before")
}

// withCDIOff starts pod before, and containerd anew without CDI, and waits until the node takes no
// pods. When t ends, containerd reads CDI again, and a pod that is named after is run.
func (w *world) withCDIOff(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	if err := u.Create(ctx, pod("before").App("main", workload.Ask{Number: 1, Memory: 1000}, "alloc", "100", "expect", "ok", "forever").Build()); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitRunning(ctx, "before"); err != nil {
		t.Fatal(err)
	}
	w.setContainerd(ctx, t, readCDI+"true", readCDI+"false")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*2*time.Minute)
		defer cancel()
		w.setContainerd(ctx, t, readCDI+"false", readCDI+"true")
		w.waitHealthy(ctx, t, gpus)
		if !runs(ctx, t, u, "after") {
			t.Error("no pod runs after containerd was mended")
		}
	})
	if err := w.nodeSaid(ctx, "ContainerRuntimeUnfit", readCDI+"true"); err != nil {
		t.Fatal(err)
	}
	w.waitHealthy(ctx, t, 0)
}

// bareOnesAreEnded starts a container that gets nothing, and wants that it is ended, and that
// NVIDIA's runtime would have given it nothing either. Its program needs no driver, so that it
// runs.
func (w *world) bareOnesAreEnded(ctx context.Context, t *testing.T, u *user.User) {
	greedy := func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
		c := &p.Spec.Containers[0]
		c.Image, c.Command = sandbox.ImagePause, nil
		c.Env = append(c.Env, corev1.EnvVar{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"})
	}
	if err := u.Create(ctx, pod("bare").App("main", workload.Ask{Number: 1, Memory: 1000}).Edit(greedy).Build()); err != nil {
		t.Fatal(err)
	}
	p, err := u.Wait(ctx, "bare", "a container", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].ContainerID != ""
	})
	if err != nil {
		t.Fatal(err)
	}
	visible := environment(t, p.Status.ContainerStatuses[0].ContainerID, "NVIDIA_VISIBLE_DEVICES=")
	if _, err := u.WaitEvent(ctx, "bare", "container main was ended", readCDI+"true"); err != nil {
		t.Error(err)
	}
	p, err = u.Wait(ctx, "bare", "a container that was ended", func(p *corev1.Pod) bool {
		return len(p.Status.ContainerStatuses) > 0 && ending(&p.Status.ContainerStatuses[0]) != nil
	})
	if err != nil {
		t.Fatal(err)
	}
	end := ending(&p.Status.ContainerStatuses[0])
	t.Logf("a container without CDI ran for %s, with %q", end.FinishedAt.Sub(end.StartedAt.Time), visible)
	if end.ExitCode != 137 {
		t.Errorf("it ended with exit code %d", end.ExitCode)
	}
	if len(visible) > 0 && !slices.Equal(visible, []string{"NVIDIA_VISIBLE_DEVICES=void"}) {
		t.Errorf("NVIDIA's runtime would give it devices: %q", visible)
	}
	w.waitHealthy(ctx, t, 0)
	if _, err := u.WaitEvent(ctx, "bare", "no container with devices starts on this node"); err != nil {
		t.Error(err)
	}
	if err := u.Delete(ctx, "bare"); err != nil {
		t.Fatal(err)
	}
}

// environment is what the processes of a container have of a variable; nothing if they have ended.
func environment(t *testing.T, container, variable string) []string {
	t.Helper()
	var out []string
	for _, p := range processesOf(t, container) {
		all, err := p.Environ()
		if err != nil {
			continue
		}
		out = append(out, slices.DeleteFunc(all, func(v string) bool { return !strings.HasPrefix(v, variable) })...)
	}
	return out
}

// ending is how the last container of a pod that has ended did so, nil if none has.
func ending(s *corev1.ContainerStatus) *corev1.ContainerStateTerminated {
	if s.State.Terminated != nil {
		return s.State.Terminated
	}
	return s.LastTerminationState.Terminated
}

// setContainerd replaces a text in containerd's settings and starts it anew.
func (w *world) setContainerd(ctx context.Context, t *testing.T, old, now string) {
	t.Helper()
	file := filepath.Join(w.cluster.Dir(), "config", "containerd.toml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Count(text, []byte(old)) != 1 {
		t.Fatalf("containerd's settings do not have %q once:\n%s", old, text)
	}
	if err := os.WriteFile(file, bytes.Replace(text, []byte(old), []byte(now), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.Restart(sandbox.Containerd); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.WaitReady(ctx, sandbox.Containerd); err != nil {
		t.Fatal(err)
	}
}
