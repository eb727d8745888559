// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// testUnfit creates pods with devices whose containers could not use them: in virtual machines, or
// with users of their own. The policy refuses them with the field's name, or else the node does.
func testUnfit(t *testing.T, w *world) {
	ctx, u := w.user(t, "unfit", 2*time.Minute)
	// The handler is the node's own runtime: nothing but our rules keeps the pods from running.
	w.runtimeClass(ctx, t, "machines", "runc")
	w.runtimeClass(ctx, t, "nvidia", "runc")
	in := func(name, class string, ask workload.Ask) *corev1.Pod {
		return pod(name).App("main", ask, "info").Edit(func(p *corev1.Pod) { p.Spec.RuntimeClassName = &class }).Build()
	}
	one := workload.Ask{Number: 1, Memory: 256}
	ownUsers := pod("own-users").App("main", one, "info").Edit(func(p *corev1.Pod) { p.Spec.HostUsers = ptr.To(false) }).Build()
	for want, p := range map[string]*corev1.Pod{
		"spec.hostUsers: NVIDIA's hook":                                         ownUsers,
		"spec.runtimeClassName: it is not known whether containers of machines": in("in-machine", "machines", one),
	} {
		err := u.Create(ctx, p)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("pod %s is answered with %v, want %q", p.Name, err, want)
		} else {
			t.Log(err)
		}
	}
	plain := pod("plain").Plain("main", "true").Edit(func(p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("machines") }).Build()
	if err := u.Create(ctx, in("in-nvidia", "nvidia", one), plain); err != nil {
		t.Fatalf("a RuntimeClass that is known, and a pod that asks for nothing: %v", err)
	}
	w.withoutPolicy(ctx, t, u, in("in-machine", "machines", one))
	if text, err := u.WaitEvent(ctx, "in-machine", "DevicePrepareFailed", "spec.runtimeClassName"); err != nil {
		t.Error(err)
	} else {
		t.Log(text)
	}
	if p, err := u.Get(ctx, "in-machine"); err != nil || p.Status.Phase != corev1.PodPending {
		t.Errorf("the pod in a virtual machine is %v, %v", p.Status.Phase, err)
	}
	succeeds(ctx, t, u, "in-nvidia")
	succeeds(ctx, t, u, "plain")
	t.Run("claims", func(t *testing.T) { testUnallocatedClaims(ctx, t, u) })
}

// testUnallocatedClaims creates pods with resource claims, with devices of ours and without: as
// installed, nobody allocates them, and a pod that was bound would wait on its node for ever.
func testUnallocatedClaims(ctx context.Context, t *testing.T, u *user.User) {
	claims := func(p *corev1.Pod) {
		useClaim(p, corev1.PodResourceClaim{Name: "nic", ResourceClaimTemplateName: ptr.To("nic")})
	}
	sharing := pod("claims-and-gpu").App("main", workload.Ask{Number: 1, Memory: 256}, "info").Edit(claims).Build()
	if err := u.Create(ctx, sharing, pod("claims").Plain("main", "true").Edit(claims).Build()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"claims-and-gpu", "claims"} {
		if p, err := u.Get(ctx, name); err != nil || len(p.Spec.ResourceClaims) == 0 {
			t.Skipf("this API server has no resource claims: %v, %v", p.Spec.ResourceClaims, err)
		}
		if text, err := u.WaitEvent(ctx, name, "FailedScheduling", "allocates no resource claims (spec.resourceClaims: nic)"); err != nil {
			t.Error(err)
		} else {
			t.Log(text)
		}
		if p, err := u.Get(ctx, name); err != nil || p.Spec.NodeName != "" {
			t.Errorf("pod %s is on node %q, %v", name, p.Spec.NodeName, err)
		}
	}
}

// runtimeClass makes a RuntimeClass for the time of the test.
func (w *world) runtimeClass(ctx context.Context, t *testing.T, name, handler string) {
	t.Helper()
	classes := w.cluster.Client().NodeV1().RuntimeClasses()
	class := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: handler}
	if _, err := classes.Create(ctx, class, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := classes.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// withoutPolicy creates a pod while the policy about requests refuses nothing. The API server needs
// a moment to see a change of it.
func (w *world) withoutPolicy(ctx context.Context, t *testing.T, u *user.User, p *corev1.Pod) {
	t.Helper()
	bindings := w.cluster.Client().AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	set := func(ctx context.Context, action admissionv1.ValidationAction) error {
		b, err := bindings.Get(ctx, "deviceshare-requests", metav1.GetOptions{})
		if err != nil {
			return err
		}
		b.Spec.ValidationActions = []admissionv1.ValidationAction{action}
		_, err = bindings.Update(ctx, b, metav1.UpdateOptions{})
		return err
	}
	if err := set(ctx, admissionv1.Warn); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := set(context.WithoutCancel(ctx), admissionv1.Deny); err != nil {
			t.Error(err)
		}
	}()
	for {
		err := u.Create(ctx, p)
		if err == nil {
			return
		}
		if !strings.Contains(err.Error(), "spec.runtimeClassName") || ctx.Err() != nil {
			t.Fatal(err)
		}
		sleep(ctx, 200*time.Millisecond)
	}
}
