// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// asScheduler is a client in the scheduler's name, with which a placement may be written, and with
// all rights.
func asScheduler(t *testing.T, c *sandbox.Cluster) kubernetes.Interface {
	t.Helper()
	config := c.RestConfig()
	config.Impersonate = rest.ImpersonationConfig{UserName: sandbox.User(sandbox.Scheduler), Groups: []string{"system:masters"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// testForged lets a scheduler write placements that are wrong, as one with a mistake would, or
// somebody who has its token. The node believes none of them.
func testForged(t *testing.T, w *world) {
	ctx, u := w.user(t, "forged", 4*time.Minute)
	ask := workload.Ask{Number: 1, Memory: 60000}
	if err := u.Create(ctx, pod("owner").App("main", ask, "alloc", "50000", "expect", "ok", "forever").Build()); err != nil {
		t.Fatal(err)
	}
	owner, err := u.WaitRunning(ctx, "owner")
	if err != nil {
		t.Fatal(err)
	}
	w.refuses(ctx, t, u, "twice", ask, owner.Annotations, "cannot have beside "+u.Namespace()+"/owner")
	w.refuses(ctx, t, u, "more", workload.Ask{Number: 1, Memory: 1000}, forge(t, owner.Annotations, func(s *sharing.Share) { s.Memory = 2000 * sharing.MiB }),
		"more than its spec asks for")
	w.refuses(ctx, t, u, "whole", workload.Ask{Number: 1, Memory: 1000}, forge(t, owner.Annotations, func(s *sharing.Share) { s.Whole = true }),
		"more than its spec asks for")
	w.editedWhileItRuns(ctx, t, u)
	runsOn(ctx, t, u, "owner")
}

// forge changes the share of a placement, in all texts about it.
func forge(t *testing.T, annotations map[string]string, change func(*sharing.Share)) map[string]string {
	t.Helper()
	p, err := wire.DecodePlacement(annotations[wire.PodPlacement])
	if err != nil {
		t.Fatal(err)
	}
	change(&p.Containers[0].Shares[0])
	out, err := wire.PlacementAnnotations(p, 1, time.Now().Unix())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// refuses binds a pod with a placement, and wants that the node does not start it, and why.
func (w *world) refuses(ctx context.Context, t *testing.T, u *user.User, name string, ask workload.Ask, placement map[string]string, why string) {
	t.Helper()
	p := pod(name).App("main", ask, "alloc", "100", "expect", "ok", "forever").Edit(func(p *corev1.Pod) { p.Spec.SchedulerName = "by-hand" }).Build()
	if err := u.Create(ctx, p); err != nil {
		t.Fatal(err)
	}
	w.bindWith(ctx, t, u.Namespace(), name, placement)
	if _, err := u.WaitEvent(ctx, name, "DevicePrepareFailed", why); err != nil {
		t.Errorf("pod %s: %v", name, err)
	}
	if p, err := u.Get(ctx, name); err != nil || hasRun(p) {
		t.Errorf("pod %s has run: %v", name, err)
	}
	if err := u.Delete(ctx, name); err != nil {
		t.Fatal(err)
	}
}

// editedWhileItRuns makes the annotations of a running pod say that it has the device whole. Its
// container, which starts again, is held to what it got before.
func (w *world) editedWhileItRuns(ctx context.Context, t *testing.T, u *user.User) {
	t.Helper()
	line := "echo began >> /work/lives; if test $(grep -c began /work/lives) = 1; then cudaclient alloc 900 expect ok hold 10; exit 9; fi; " +
		"exec cudaclient " + strings.Join(heldToShare(), " ")
	edited := pod("edited").App("main", workload.Ask{Number: 1, Memory: 1000}).Edit(func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		main := &p.Spec.Containers[0]
		main.VolumeMounts = []corev1.VolumeMount{{Name: "work", MountPath: "/work"}}
		main.Command = []string{"sh", "-c", line}
	}).Build()
	if err := u.Create(ctx, edited); err != nil {
		t.Fatal(err)
	}
	p, err := u.WaitRunning(ctx, "edited")
	if err != nil {
		t.Fatal(err)
	}
	text := forge(t, p.Annotations, func(s *sharing.Share) { s.Whole = true })[wire.PodPlacement]
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, wire.PodPlacement, text)
	if _, err := asScheduler(t, w.cluster).CoreV1().Pods(p.Namespace).Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitEvent(ctx, "edited", "DevicePlacementEdited", "keeps what it got"); err != nil {
		t.Error(err)
	}
	succeeds(ctx, t, u, "edited")
}
