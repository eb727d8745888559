// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// lookForDevice succeeds in a container that has a device file of NVIDIA's.
const lookForDevice = "ls /dev/nvidia0"

// testUnasked creates pods that ask for no device and would get all of them, under each policy:
// NVIDIA's runtime gives them nothing any more, or they are not created.
func testUnasked(t *testing.T, w *world) {
	ctx, u := w.user(t, "unasked", 3*time.Minute)
	_, exempt := w.user(t, "unasked-exempt", 3*time.Minute)
	w.runtimeClass(ctx, t, "nvidia", sandbox.NVIDIAHandler)
	label := []byte(`{"metadata":{"labels":{"gpus":"free"}}}`)
	if _, err := w.cluster.Client().CoreV1().Namespaces().Patch(ctx, exempt.Namespace(), mergePatch, label, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Run("allow", func(t *testing.T) {
		if err := u.Create(ctx, wantsAll("image", lookForDevice)); err != nil {
			t.Fatal(err)
		}
		succeeds(ctx, t, u, "image")
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
		defer cancel()
		if out, err := w.cluster.Upgrade(ctx, "--wait=legacy"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("runtime_settings", func(t *testing.T) { w.runtimeRefusesDevices(ctx, t, u) })
	t.Run("void", func(t *testing.T) { w.voidsDevices(ctx, t, u) })
	t.Run("deny", func(t *testing.T) { w.deniesDevices(ctx, t, u, exempt) })
}

// runtimeRefusesDevices sets NVIDIA's runtime as the page says to which the node's event leads. The
// same pod then gets nothing.
func (w *world) runtimeRefusesDevices(ctx context.Context, t *testing.T, u *user.User) {
	const setting = "accept-nvidia-visible-devices-envvar-when-unprivileged = false"
	if err := w.nodeSaid(ctx, "NVIDIARuntimeUnfit", `the runtime "`+sandbox.NVIDIAHandler+`" is NVIDIA's`); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.SetNVIDIARuntime(setting); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.cluster.SetNVIDIARuntime(""); err != nil {
			t.Error(err)
		}
	})
	if err := u.Create(ctx, wantsAll("refused", "! "+lookForDevice)); err != nil {
		t.Fatal(err)
	}
	succeeds(ctx, t, u, "refused")
	if err := w.nodeSaid(ctx, "NVIDIARuntimeUnfitResolved", ""); err != nil {
		t.Error(err)
	}
}

const mergePatch = "application/merge-patch+json"

// wantsAll is a pod whose image names every device, with a line for its shell.
func wantsAll(name, line string) *corev1.Pod {
	return pod(name).Plain("main", line).Edit(func(p *corev1.Pod) {
		p.Spec.RuntimeClassName, p.Spec.Containers[0].Image = ptr.To("nvidia"), sandbox.ImageWantsAll
	}).Build()
}

func privilegedPod(name string) *corev1.Pod {
	return pod(name).Plain("main", "true").Edit(func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
	}).Build()
}

// setPolicy upgrades the chart and waits until the API server goes by it.
func (w *world) setPolicy(ctx context.Context, t *testing.T, u *user.User, name string) {
	t.Helper()
	began := time.Now()
	out, err := w.cluster.Upgrade(ctx, "--set", "unaskedDevices.policy="+name, "--set", "unaskedDevices.exemptNamespaceLabels.gpus=free", "--wait=legacy")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pods, dry := w.cluster.Client().CoreV1().Pods(u.Namespace()), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for ctx.Err() == nil {
		p, err := pods.Create(ctx, wantsAll("dry", "true"), dry)
		_, refusal := pods.Create(ctx, privilegedPod("dry"), dry)
		if err == nil && visibleDevices(p.Spec.Containers[0].Env) == "void" && (refusal != nil) == (name == "deny") {
			t.Logf("policy %s held after %s", name, time.Since(began).Round(time.Second))
			return
		}
		sleep(ctx, 200*time.Millisecond)
	}
	t.Fatalf("policy %s does not hold", name)
}

// visibleDevices is what a container says of the devices that it is to see, "-" for nothing.
func visibleDevices(env []corev1.EnvVar) string {
	for _, v := range env {
		if v.Name == "NVIDIA_VISIBLE_DEVICES" {
			return v.Value
		}
	}
	return "-"
}

func (w *world) voidsDevices(ctx context.Context, t *testing.T, u *user.User) {
	w.setPolicy(ctx, t, u, "void")
	says := pod("says").Plain("main", "! "+lookForDevice).Edit(namesAll).Build()
	share := pod("share").App("main", workload.Ask{Number: 1, Memory: 256}, "alloc", "100", "expect", "ok").Build()
	if err := u.Create(ctx, wantsAll("voided", "! "+lookForDevice), says, privilegedPod("privileged"), share); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"voided", "says", "privileged", "share"} {
		succeeds(ctx, t, u, name)
	}
}

func (w *world) deniesDevices(ctx context.Context, t *testing.T, u, exempt *user.User) {
	w.setPolicy(ctx, t, u, "deny")
	privileged := privilegedPod("refused")
	mounts := pod("refused").Plain("main", "true").Edit(func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "dev", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "//dev/./nvidia0"}}}}
	}).Build()
	for want, p := range map[string]*corev1.Pod{
		"spec.containers[main]: env NVIDIA_VISIBLE_DEVICES names devices": pod("refused").Plain("main", "true").Edit(namesAll).Build(),
		"spec.containers[main]: securityContext.privileged":               privileged,
		"spec.volumes[dev].hostPath: leads to devices":                    mounts,
		"metadata.annotations[cdi.k8s.io/x]: names devices":               pod("refused").Plain("main", "true").Annotate("cdi.k8s.io/x", "nvidia.com/gpu=all").Build(),
	} {
		if err := u.Create(ctx, p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("answered with %v, want %q", err, want)
		} else {
			t.Log(err)
		}
	}
	system := privileged.DeepCopy()
	system.Namespace = metav1.NamespaceSystem
	if _, err := w.cluster.Client().CoreV1().Pods(system.Namespace).Create(ctx, system, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
		t.Errorf("a privileged pod of the system: %v", err)
	}
	free := wantsAll("free", lookForDevice)
	share := pod("denied-share").App("main", workload.Ask{Number: 1, Memory: 256}, "alloc", "100", "expect", "ok", "forever").Build()
	if err := errors.Join(exempt.Create(ctx, free), u.Create(ctx, wantsAll("denied", "! "+lookForDevice), share)); err != nil {
		t.Fatal(err)
	}
	succeeds(ctx, t, u, "denied")
	succeeds(ctx, t, exempt, "free")
	if _, err := u.WaitLog(ctx, "denied-share", "main", "forever"); err != nil {
		t.Fatal(err)
	}
	w.debugs(ctx, t, u, "denied-share")
	w.withoutWebhook(ctx, t, u)
}

// debugs adds containers to a pod that runs, as `kubectl debug` does.
func (w *world) debugs(ctx context.Context, t *testing.T, u *user.User, name string) {
	t.Helper()
	debugger := func(name string, env ...corev1.EnvVar) corev1.EphemeralContainer {
		return corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
			Name: name, Env: env, Image: sandbox.ImageWantsAll, ImagePullPolicy: corev1.PullNever, Command: []string{"true"},
		}}
	}
	p, err := u.Debug(ctx, name, debugger("debug-0"))
	if err != nil {
		t.Fatal(err)
	}
	if got := visibleDevices(p.Spec.EphemeralContainers[0].Env); got != "void" {
		t.Errorf("the image of a container for debugging says %s", got)
	}
	all := corev1.EnvVar{Name: "NVIDIA_VISIBLE_DEVICES", Value: "all"}
	if _, err := u.Debug(ctx, name, debugger("debug-1", all)); err == nil || !strings.Contains(err.Error(), "spec.ephemeralContainers[debug-1]: env") {
		t.Errorf("a container for debugging that names devices is answered with %v", err)
	}
}

// withoutWebhook creates pods while the webhook is away: others are created, and who names devices
// is refused.
func (w *world) withoutWebhook(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	if err := w.cluster.StopComponent(sandbox.Webhook); err != nil {
		t.Fatal(err)
	}
	if err := u.Create(ctx, pod("others").Plain("main", "true").Build()); err != nil {
		t.Errorf("the webhook is away and must fail open: %v", err)
	}
	err := u.Create(ctx, pod("refused").Plain("main", "true").Edit(namesAll).Build())
	if err == nil || !strings.Contains(err.Error(), "NVIDIA_VISIBLE_DEVICES names devices") {
		t.Errorf("answered with %v", err)
	}
	if err := w.cluster.StartComponent(sandbox.Webhook); err != nil {
		t.Error(err)
	}
	succeeds(ctx, t, u, "others")
}
