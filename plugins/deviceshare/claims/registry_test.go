// SPDX-License-Identifier: Apache-2.0

package claims_test

import (
	"errors"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/plugins/deviceshare/claims"
	"deviceshare/plugins/deviceshare/claimstate"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

func placementOn(node string) sharing.Placement {
	return sharing.Placement{Node: node, Containers: []sharing.ContainerShares{{
		Container: "gpu", Shares: []sharing.Share{{Device: "GPU-1", Mode: sharing.HAMiCore, Memory: sharing.GiB}},
	}}}
}

// claimAt is a claim at a version of its object, allocated on a node unless that is "".
func claimAt(t *testing.T, version int, node string, pods ...types.UID) *resourcev1.ResourceClaim {
	t.Helper()
	c := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "uid-c", ResourceVersion: strconv.Itoa(version)}}
	if node == "" {
		return c
	}
	text, err := wire.EncodeClaimPlacement(wire.ClaimPlacement{Placement: placementOn(node), Queue: "q"})
	if err != nil {
		t.Fatal(err)
	}
	c.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
		Results: []resourcev1.DeviceRequestAllocationResult{{Request: "gpu", Driver: wire.ClaimDriver, Pool: node, Device: "gpu-1"}},
		Config: []resourcev1.DeviceAllocationConfiguration{{Source: resourcev1.AllocationConfigSourceClaim, DeviceConfiguration: resourcev1.DeviceConfiguration{
			Opaque: &resourcev1.OpaqueDeviceConfiguration{Driver: wire.ClaimDriver, Parameters: runtime.RawExtension{Raw: text}}}}},
	}}
	for _, uid := range pods {
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: string(uid), UID: uid})
	}
	return c
}

var name = types.NamespacedName{Namespace: "ns", Name: "c"}

func TestAClaimHoldsWhatItsStatusSaysAndAnOlderObjectChangesNothing(t *testing.T) {
	r := claims.NewRegistry()
	r.Observe(claimAt(t, 7, "n1", "p"))
	before := r.On("n1")
	if h := before.Of("uid-c"); h == nil || h.Queue != "q" || h.Placement.Node != "n1" || h.Unreadable != nil {
		t.Fatalf("the node has %+v", before)
	}
	r.Observe(claimAt(t, 6, ""))
	if r.On("n1") != before {
		t.Error("an older object changed what the node has")
	}
	if c := r.Find(name); c == nil || c.Node != "n1" || !c.Written {
		t.Errorf("the claim is %+v", c)
	}
}

// A claim whose finalizer somebody tore off is gone while its pod computes on.
func TestAClaimThatWasLostHoldsUntilItsPodsAreGone(t *testing.T) {
	for how, lose := range map[string]func(*claims.Registry){
		"deleted":     func(r *claims.Registry) { r.Remove(claimAt(t, 8, "n1", "p")) },
		"deallocated": func(r *claims.Registry) { r.Observe(claimAt(t, 8, "")) },
	} {
		r := claims.NewRegistry()
		r.Observe(claimAt(t, 7, "n1", "p"))
		lose(r)
		h := r.On("n1").Of("uid-c")
		if h == nil || !h.IsLost || len(h.Pods) != 1 {
			t.Fatalf("%s, the claim holds %+v", how, h)
		}
		if c := r.Find(name); c != nil && c.Node != "" {
			t.Errorf("%s, the claim still has a node for new pods: %+v", how, c)
		}
		r.Forget([]sharing.Owner{"uid-c"})
		if r.On("n1").Of("uid-c") != nil {
			t.Errorf("%s, and its pods gone, it still holds", how)
		}
	}
}

func TestAnAllocationThatNobodyHereWroteBlocksItsNode(t *testing.T) {
	for what, spoil := range map[string]func(*resourcev1.ResourceClaim){
		"no placement":          func(c *resourcev1.ResourceClaim) { c.Status.Allocation.Devices.Config = nil },
		"other devices than it": func(c *resourcev1.ResourceClaim) { c.Status.Allocation.Devices.Results[0].Device = "gpu-2" },
		"two placements": func(c *resourcev1.ResourceClaim) {
			d := &c.Status.Allocation.Devices
			d.Config = append(d.Config, d.Config[0])
		},
	} {
		c := claimAt(t, 7, "n1", "p")
		spoil(c)
		r := claims.NewRegistry()
		r.Observe(c)
		if h := r.On("n1").Of("uid-c"); h == nil || h.Unreadable == nil {
			t.Errorf("with %s the node has %+v", what, h)
		}
	}
}

func TestADecisionHoldsUntilItIsKnownWhatBecameOfIt(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "p"}}
	decided := func() *claims.Registry {
		r := claims.NewRegistry()
		r.Observe(claimAt(t, 5, ""))
		r.Decide(pod, claims.Bind{Owner: "uid-c", Name: name, Node: "n1"}, &claimstate.Decision{Node: "n1", Placement: placementOn("n1"), Queue: "q"})
		return r
	}
	holds := func(r *claims.Registry) bool { return r.On("n1").Of("uid-c") != nil }

	r := decided()
	r.WithdrawUnless(func(types.NamespacedName, types.UID, string) bool { return false })
	if holds(r) {
		t.Error("a decision whose pod was taken off the node holds")
	}
	if _, known, _ := r.BeginBind(pod, "n1"); known {
		t.Error("a pod whose decision was given up is bound")
	}

	r = decided()
	w, known, err := r.BeginBind(pod, "n1")
	if err != nil || !known || w.Decision == nil {
		t.Fatalf("the bind begins with %+v, %v, %v", w, known, err)
	}
	r.WithdrawUnless(func(types.NamespacedName, types.UID, string) bool { return false })
	r.BeginWrite("uid-c", w.Object)
	r.Lose("uid-c")
	r.EndBind("p")
	if !holds(r) || !r.IsUnanswered("uid-c") {
		t.Error("a write whose answer was lost holds nothing")
	}
	r.Observe(claimAt(t, 6, "n1", "p"))
	if !holds(r) || r.IsUnanswered("uid-c") {
		t.Error("a write that happened after all holds nothing")
	}

	r = decided()
	if _, _, err := r.BeginBind(pod, "n2"); err == nil {
		t.Error("a pod is bound to another node than its claim")
	}
	r.Decide(pod, claims.Bind{Owner: "uid-c", Name: name, Node: "n1", Refusal: errors.New("no")}, nil)
	if _, _, err := r.BeginBind(pod, "n1"); err == nil {
		t.Error("a pod that must not be bound is")
	}
}
