// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// commandOf replaces what the first container runs.
func commandOf(command ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Command = command }
}

// imagesAsTheyAre runs what people pack into images. Each is held to its share, or does not run.
func (w *world) imagesAsTheyAre(t *testing.T) {
	ctx, u := w.user(t, "images", 3*time.Minute)
	ask, held := workload.Ask{Number: 1, Memory: 1000}, heldToShare()
	sharedTmp := pod("shared-tmp").App("main", ask, held...).App("second", ask, held...).Edit(func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		for i := range p.Spec.Containers {
			p.Spec.Containers[i].VolumeMounts = []corev1.VolumeMount{{Name: "tmp", MountPath: "/tmp"}}
		}
	})
	const setuid = "/usr/bin/cudaclient-setuid"
	heldPods := []*workload.Pod{
		sharedTmp,
		pod("setuid").AsUser(1000).App("main", ask, held...).Edit(commandOf(append([]string{setuid}, held...)...)),
		// As sudo starts a program: as another user, and without an environment.
		pod("sudo").AsUser(1000).App("main", ask, held...).Edit(
			commandOf("sh", "-c", "ls -l "+setuid+" | grep -q rws || exit 9; exec env -i "+setuid+" "+strings.Join(held, " "))),
		// Root in its image, which it may write.
		pod("takes-away").App("main", ask, held...).Edit(
			commandOf("sh", "-c", "rm -f /etc/ld.so.preload && exit 9; true > /etc/ld.so.preload && exit 9; exec cudaclient "+strings.Join(held, " "))),
	}
	bare := workload.New("bare", sandbox.ImageBare).App("main", ask, append(held, "forever")...)
	hostile := workload.New("hostile", sandbox.ImageHostile).App("main", ask).Edit(commandOf())
	old := pod("old-libc").App("main", ask, "alloc", "5000", "expect", "ok").Edit(func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "LD_LIBRARY_PATH", Value: sandbox.OldLibraries}}
	})
	for _, p := range append(slices.Clone(heldPods), bare, hostile, old) {
		if err := u.Create(ctx, p.Build()); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range heldPods {
		succeeds(ctx, t, u, p.Build().Name)
	}
	bareKeepsWhatItPreloads(ctx, t, u)
	if text, err := u.WaitEvent(ctx, "hostile", "deviceshare-hook: read what the image preloads by itself", "more than 65536 bytes"); err != nil {
		t.Error(err)
	} else {
		t.Logf("an image whose list cannot be read: %s", text)
	}
	tooOld(ctx, t, u)
}

// bareKeepsWhatItPreloads expects that a container without a shell is held to its share, and has
// what its image preloads by itself.
func bareKeepsWhatItPreloads(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	p, err := u.WaitRunning(ctx, "bare")
	if err != nil {
		t.Error(err)
		return
	}
	if _, err := u.WaitLog(ctx, "bare", "main", "forever"); err != nil {
		t.Error(err)
	}
	mapped := filesMapped(t, p.Status.ContainerStatuses[0].ContainerID)
	for _, want := range []string{"/usr/local/vgpu/libvgpu.so", sandbox.PreloadedByImage} {
		if !slices.Contains(mapped, want) {
			t.Errorf("%s is not in the process: %q", want, mapped)
		}
	}
	runsOn(ctx, t, u, "bare")
}

// tooOld expects that a program whose C library is too old for libvgpu.so does not run: the loader
// does not start it.
func tooOld(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	p, err := u.WaitDone(ctx, "old-libc")
	if err != nil {
		t.Error(err)
		return
	}
	log, err := u.Log(ctx, "old-libc", "main")
	if err != nil || p.Status.Phase != corev1.PodFailed || !strings.Contains(log, "required by /usr/local/vgpu/libvgpu.so") {
		t.Errorf("a program with an old C library: %s, %v:\n%s", p.Status.Phase, err, log)
	}
}

// filesMapped are the files that the processes of a container have mapped, as they see them.
func filesMapped(t *testing.T, container string) []string {
	t.Helper()
	var out []string
	for _, p := range processesOf(t, container) {
		maps, err := p.ProcMaps()
		if err != nil {
			continue
		}
		for _, m := range maps {
			out = append(out, m.Pathname)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// processesOf are the processes of a container.
func processesOf(t *testing.T, container string) []procfs.Proc {
	t.Helper()
	_, id, _ := strings.Cut(container, "://")
	processes, err := procfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(processes, func(p procfs.Proc) bool {
		groups, err := p.Cgroups()
		return err != nil || !slices.ContainsFunc(groups, func(g procfs.Cgroup) bool { return strings.Contains(g.Path, id) })
	})
}

// overAKubeletRestart starts a container again after the kubelet did: it has what it had, and not
// what the init container of its pod had.
func (w *world) overAKubeletRestart(t *testing.T) {
	ctx, u := w.user(t, "kubelet-restart", 3*time.Minute)
	for n := 0; !w.staysOverAKubeletRestart(ctx, t, u); n++ {
		// A kubelet that starts refuses a pod whose init container has ended if it looks at the
		// pod before the keeper has registered. On a busy machine it sometimes does.
		t.Logf("the kubelet refused the pod: try %d", n+2)
		if err := u.Delete(ctx, "stays"); err != nil {
			t.Fatal(err)
		}
	}
	log, err := u.WaitLog(ctx, "stays", "main", "forever")
	if err != nil || !strings.Contains(log, "total=1048576000") || strings.Contains(log, "total=3145728000") {
		t.Errorf("after the restart the container sees (%v):\n%s", err, log)
	}
}

// staysOverAKubeletRestart restarts the kubelet below a pod and ends the pod's container, and waits
// until that runs again. It is false if the kubelet refused the pod.
func (w *world) staysOverAKubeletRestart(ctx context.Context, t *testing.T, u *user.User) bool {
	t.Helper()
	p := pod("stays").Init("first", workload.Ask{Number: 2, Memory: 3000}, "info").
		App("main", workload.Ask{Number: 1, Memory: 1000}, append([]string{"info"}, append(heldToShare(), "forever")...)...).
		Edit(func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyAlways })
	if err := u.Create(ctx, p.Build()); err != nil {
		t.Fatal(err)
	}
	before, err := u.WaitRunning(ctx, "stays")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.Restart(sandbox.Kubelet); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.WaitReady(ctx, sandbox.Kubelet); err != nil {
		t.Fatal(err)
	}
	for _, p := range processesOf(t, before.Status.ContainerStatuses[0].ContainerID) {
		if process, err := os.FindProcess(p.PID); err == nil {
			_ = process.Kill()
		}
	}
	after, err := u.Wait(ctx, "stays", "running again", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].RestartCount == 1 && s[0].State.Running != nil || p.Status.Reason == "UnexpectedAdmissionError"
	})
	if err != nil {
		t.Fatal(err)
	}
	return after.Status.Reason != "UnexpectedAdmissionError"
}

// stateThatRunsNothing is a node whose /var runs no programs: the hooks of a container cannot be
// run, so it does not start.
func (w *world) stateThatRunsNothing(t *testing.T) {
	ctx, u := w.user(t, "no-exec", 2*time.Minute)
	const dir = "/var/lib/deviceshare/hami-core/hook"
	// A container that is being started may keep it busy.
	const mend = "while umount --lazy " + dir + " 2>/dev/null; do :; done"
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
		defer cancel()
		if _, err := w.cluster.Run(ctx, "sh", "-c", mend); err != nil {
			t.Error(err)
		}
	})
	const spoil = "mkdir -p " + dir + " && mount --bind " + dir + " " + dir + " && mount -o remount,bind,noexec " + dir
	if _, err := w.cluster.Run(ctx, "sh", "-c", spoil); err != nil {
		t.Fatal(err)
	}
	if err := u.Create(ctx, pod("waits").App("main", workload.Ask{Number: 1, Memory: 1000}, "alloc", "5000", "expect", "ok").Edit(func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}).Build()); err != nil {
		t.Fatal(err)
	}
	text, err := u.WaitEvent(ctx, "waits", "deviceshare-hook", "permission denied")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("a hook that cannot be run: %s", text)
	if log, _ := u.Log(ctx, "waits", "main"); strings.Contains(log, "alloc") {
		t.Errorf("the container ran:\n%s", log)
	}
	if _, err := w.cluster.Run(ctx, "sh", "-c", mend); err != nil {
		t.Fatal(err)
	}
	if !runs(ctx, t, u, "after") {
		t.Error("no pod runs after the hook can be run again")
	}
}
