// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	volcanofake "volcano.sh/apis/pkg/client/clientset/versioned/fake"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// sharer is a running pod of a controller with a share of a device of node n1.
func sharer(t *testing.T, name string, device sharing.DeviceID) *corev1.Pod {
	t.Helper()
	text, err := wire.EncodePlacement(sharing.Placement{Node: "n1", Containers: []sharing.ContainerShares{
		{Container: "main", Shares: []sharing.Share{{Device: device, Mode: sharing.HAMiCore, Memory: 100 * sharing.MiB}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ml", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": name[:1]},
			Annotations:     map[string]string{wire.PodPlacement: text, wire.PodNode: "n1", wire.GroupName: "train"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", Controller: ptr.To(true)}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	p.Spec.NodeName = "n1"
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: quantities(1, 0, 0)}}}
	return p
}

// newDrainer is a call whose looks follow each other at once.
func newDrainer(devices ...string) (r *drainer, out, said interface{ String() string }) {
	streams, _, o, s := genericiooptions.NewTestIOStreams()
	r = &drainer{cordoner: cordoner{options: &options{streams: streams, output: "table"}, node: "n1", devices: devices, drains: true}, period: time.Nanosecond}
	return r, o, s
}

func TestDrainReturnsWhenTheDevicesAreEmpty(t *testing.T) {
	ending := sharer(t, "b", "GPU-a")
	ending.DeletionTimestamp, ending.Finalizers = ptr.To(metav1.Now()), []string{"x/y"}
	core := asCarol(publishing(t, "", ""), sharer(t, "a", "GPU-a"), ending, sharer(t, "other", "GPU-b"))
	for i, message := range []string{"device 0 (GPU-a) of this node: an old text", "device 0 (GPU-a) of this node is not drained before these pods have left: ml/a (the budget needs 1)", "device 1 (GPU-b): of another"} {
		e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: message[:20] + string(rune('a'+i))}, Message: message, Reason: "GPUDrainHeldUp", LastTimestamp: metav1.Unix(int64(i), 0)}
		e.InvolvedObject.Name = "n1"
		if err := core.Tracker().Add(e); err != nil {
			t.Fatal(err)
		}
	}
	looks := 0
	core.PrependReactor("list", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		looks++
		for i, name := range map[int]string{3: "b", 5: "a"} {
			if i == looks {
				if err := core.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ml", name); err != nil {
					t.Error(err)
				}
			}
		}
		return false, nil, nil
	})
	r, out, said := newDrainer("0")
	if err := r.drainDevices(t.Context(), core); err != nil {
		t.Fatal(err)
	}
	if want := "Device 0 (GPU-a) of node n1 is empty. In use again with: kubectl deviceshare uncordon n1 0\n"; out.String() != want {
		t.Errorf("it says %q, want %q", out, want)
	}
	const obstacle = "\n  the scheduler says: device 0 (GPU-a) of this node is not drained before these pods have left: ml/a (the budget needs 1)\n"
	if want := "Device 0 (GPU-a) of node n1 takes no new pods.\n2 pods are left: ml/b (ending), ml/a" + obstacle + "1 pod is left: ml/a" + obstacle; said.String() != want {
		t.Errorf("on the way it says\n%q, want\n%q", said, want)
	}
	if c := cordonsOf(t, core)["GPU-a"]; !c.Drains || c.By != "carol" {
		t.Errorf("the device has the cordon %+v", c)
	}
}

func TestADrainThatIsNotAwaitedGoesOn(t *testing.T) {
	core := asCarol(publishing(t, ""), sharer(t, "a", "GPU-a"))
	r, _, _ := newDrainer("0")
	r.timeout = time.Nanosecond
	want := "not over after 1ns; the scheduler goes on without you; stop it with: kubectl deviceshare uncordon n1 0"
	if err := r.drainDevices(t.Context(), core); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if !cordonsOf(t, core)["GPU-a"].Drains {
		t.Error("the cordon is taken back")
	}
}

func TestADryRunSaysWhoWouldLeaveAndWritesNothing(t *testing.T) {
	bare, unread := sharer(t, "bare", "GPU-a"), sharer(t, "unread", "GPU-a")
	bare.OwnerReferences, unread.Annotations[wire.PodPlacement] = nil, "{"
	elsewhere := sharer(t, "elsewhere", "GPU-z")
	elsewhere.Spec.NodeName = "n2"
	core := asCarol(publishing(t, "", ""), sharer(t, "a1", "GPU-a"), sharer(t, "a2", "GPU-a"), sharer(t, "c", "GPU-a"), bare, unread, elsewhere)
	fieldsAsServed(core)
	budget := func(name string, allowed int32) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name},
			Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}},
			Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed}}
	}
	for _, b := range []*policyv1.PodDisruptionBudget{budget("a", 1), budget("c", 1)} {
		if err := core.Tracker().Add(b); err != nil {
			t.Fatal(err)
		}
	}
	groups := volcanofake.NewSimpleClientset(&schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: "train"}, Spec: schedulingv1beta1.PodGroupSpec{MinMember: 4}})
	r, out, _ := newDrainer("0")
	if err := r.showWhoLeaves(t.Context(), core, groups); err != nil {
		t.Fatal(err)
	}
	want := `POD         CONTROLLER       LEAVES   NOTE
ml/a1       ReplicaSet/web   yes      budget a lets 1 go now; group train needs 4 of its 6 pods
ml/a2       ReplicaSet/web   yes      budget a lets 1 go now; group train needs 4 of its 6 pods
ml/c        ReplicaSet/web   yes      group train needs 4 of its 6 pods
ml/bare     -                no       no controller would make it again: delete it yourself
ml/unread   ReplicaSet/web   no       it cannot be read which devices it has: delete it yourself, or repair it
`
	if out.String() != want {
		t.Errorf("it says\n%s\nwant\n%s", out, want)
	}
	if got := cordonsOf(t, core); len(got) > 0 {
		t.Errorf("written %v", got)
	}
}

// fieldsAsServed has an API server list pods by their node, as a real one does.
func fieldsAsServed(core *fake.Clientset) {
	core.PrependReactor("list", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		node, asked := a.(k8stesting.ListAction).GetListRestrictions().Fields.RequiresExactMatch("spec.nodeName")
		all, err := core.Tracker().List(corev1.SchemeGroupVersion.WithResource("pods"), corev1.SchemeGroupVersion.WithKind("Pod"), a.GetNamespace())
		if err != nil || !asked {
			return err != nil, nil, err
		}
		list := all.(*corev1.PodList)
		out := &corev1.PodList{}
		for _, p := range list.Items {
			if p.Spec.NodeName == node {
				out.Items = append(out.Items, p)
			}
		}
		return true, out, nil
	})
}

func TestAnEmptyDeviceIsSaidToBeEmpty(t *testing.T) {
	core := asCarol(publishing(t, "", ""))
	r, out, _ := newDrainer("1", "0")
	if err := r.showWhoLeaves(context.Background(), core, volcanofake.NewSimpleClientset()); err != nil || out.String() != "Devices 0 (GPU-a), 1 (GPU-b) of node n1 are empty.\n" {
		t.Errorf("%q, %v", out, err)
	}
}
