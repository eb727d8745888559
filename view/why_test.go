// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/wire"
	"deviceshare/view"
	"deviceshare/view/capture"
)

// A gang's minimum counts all its pods: a launcher asks for no devices, and counts.
func TestAGangIsCompleteWithItsPodsThatAskForNoDevices(t *testing.T) {
	ended := func(phase corev1.PodPhase) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Status.Phase = phase } }
	for name, c := range map[string]struct {
		other func(*corev1.Pod)
		want  string
	}{
		"the launcher waits too":              {func(*corev1.Pod) {}, "is about to be placed"},
		"the launcher runs":                   {func(p *corev1.Pod) { p.Spec.NodeName, p.Status.Phase = "node", corev1.PodRunning }, "is about to be placed"},
		"the launcher has succeeded":          {ended(corev1.PodSucceeded), "is about to be placed"},
		"the launcher has failed":             {ended(corev1.PodFailed), "is not complete: it has 1 of the 2 pods"},
		"the launcher is being deleted":       {func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }, "it has 1 of the 2 pods"},
		"the launcher is in another gang":     {func(p *corev1.Pod) { p.Annotations[wire.GroupName] = "other" }, "it has 1 of the 2 pods"},
		"the launcher is elsewhere":           {func(p *corev1.Pod) { p.Namespace = "elsewhere" }, "it has 1 of the 2 pods"},
		"the launcher is of no gang":          {func(p *corev1.Pod) { p.Annotations = nil }, "it has 1 of the 2 pods"},
		"the gang is named Volcano's own way": {func(p *corev1.Pod) { p.Annotations = map[string]string{wire.VolcanoGroupName: "gang"} }, "is about to be placed"},
	} {
		t.Run(name, func(t *testing.T) {
			launcher := podOf("launcher", 0)
			c.other(launcher)
			w := whyOf(t, stateOf(t, launcher, podOf("worker", 1), gangOf(2)), "worker")
			if !strings.Contains(w.Answer, c.want) {
				t.Errorf("got %q, want it to say %q", w.Answer, c.want)
			}
		})
	}
}

func TestAMemberOfAGangWithoutDevicesIsToldSo(t *testing.T) {
	w := whyOf(t, stateOf(t, podOf("launcher", 0), gangOf(2)), "launcher")
	if !strings.Contains(w.Answer, "asks for no shared devices") {
		t.Errorf("got %q", w.Answer)
	}
}

// podOf is a pod of the gang that waits and asks for so many shares.
func podOf(name string, number int64) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{wire.GroupName: "gang"},
		},
		Spec:   corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if number > 0 {
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
			wire.ResourceNumber: *resource.NewQuantity(number, resource.DecimalSI), wire.ResourceMemory: resource.MustParse("1024"),
		}
	}
	return p
}

func gangOf(members int32) *schedulingv1beta1.PodGroup {
	return &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gang"},
		Spec:       schedulingv1beta1.PodGroupSpec{MinMember: members},
		Status:     schedulingv1beta1.PodGroupStatus{Phase: schedulingv1beta1.PodGroupInqueue},
	}
}

// Who asks for more than a partition serves is told how much partitions really have.
func TestARefusedPartitionSaysHowMuchPartitionsHave(t *testing.T) {
	p := podOf("large", 1)
	p.Annotations = nil
	p.Spec.Containers[0].Resources.Limits[wire.ResourceMemory] = resource.MustParse("40961")
	s := &capture.State{}
	s.Add(nodeIn(t, "node", 1, sharing.MIG))
	s.Add(p)
	s.Sort()
	w := whyOf(t, s, "large")
	const want = "large enough (NoPartitionFits); partitions have 4864MiB, 9856MiB, 19968MiB or 40192MiB"
	if len(w.Nodes) != 1 || len(w.Nodes[0].Devices) != 1 || !strings.HasSuffix(w.Nodes[0].Devices[0].Text, want) {
		t.Errorf("got %+v, want %q", w.Nodes, want)
	}
}

func nodeOf(t *testing.T, name string, devices int) *corev1.Node {
	t.Helper()
	return nodeIn(t, name, devices, sharing.HAMiCore)
}

func nodeIn(t *testing.T, name string, devices int, mode sharing.Mode) *corev1.Node {
	t.Helper()
	inv := sharing.Inventory{Node: name}
	for i := range devices {
		d := sharingtest.Device(i, "A100-40", mode)
		d.ID = sharing.DeviceID(fmt.Sprintf("GPU-%s-%d", name, i))
		inv.Devices = append(inv.Devices, d)
	}
	annotations, err := wire.NodeAnnotations(inv, 1)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{wire.ResourceNumber: resource.MustParse("20")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// stateOf is a cluster of one node with two free devices and these objects.
func stateOf(t *testing.T, objects ...any) *capture.State {
	t.Helper()
	s := &capture.State{}
	s.Add(nodeOf(t, "node", 2))
	for _, o := range objects {
		s.Add(o)
	}
	s.Sort()
	return s
}

func whyOf(t *testing.T, s *capture.State, name string) view.Why {
	t.Helper()
	w, ok := view.Read(s, factory.New()).Why("ns", name)
	if !ok {
		t.Fatalf("no pod %s", name)
	}
	return w
}
