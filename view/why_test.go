// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/wire"
	"deviceshare/view"
	"deviceshare/view/capture"
)

// told is a pod of which the scheduler has said that.
func told(p *corev1.Pod, reason, message string) *corev1.Pod {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message}}
	return p
}

// Whatever the cluster looks like to a view, the reason is the scheduler's.
func TestWhyGivesTheSchedulersWordsAndAddsWhatItCannotKnow(t *testing.T) {
	const sentence = "queue team has no room for it (plugin capacity)."
	programs := func(ready bool, names ...string) *capture.Installation {
		return &capture.Installation{Programs: []capture.Program{{Pod: "s", Schedulers: names, Ready: ready}}}
	}
	by := func(scheduler string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.SchedulerName = scheduler }
	}
	said := func(p *corev1.Pod) { by("volcano")(told(p, corev1.PodReasonUnschedulable, sentence)) }
	for name, c := range map[string]struct {
		pod       func(*corev1.Pod)
		installed *capture.Installation
		group     bool
		answer    string
		note      string
	}{
		"a sentence":                       {said, nil, true, "ns/worker waits, the scheduler says: " + sentence, ""},
		"a sentence, a scheduler is ready": {said, programs(true, "other", "volcano"), true, "ns/worker waits, the scheduler says: " + sentence, ""},
		"a sentence, no scheduler is ready": {said, programs(false, "volcano"), true, "ns/worker waits, the scheduler says: " + sentence,
			"no scheduler named volcano is ready: see kubectl deviceshare doctor"},
		"a sentence, and the group is gone": {said, nil, false, "ns/worker waits, the scheduler says: " + sentence,
			"its group ns/gang does not exist: Volcano looks at the pod when it does"},
		"nothing": {by("volcano"), nil, true,
			"ns/worker waits, and the scheduler has not said why: it does so within seconds, if it runs: see kubectl deviceshare doctor.", ""},
		"nothing, no group": {by("volcano"), nil, false,
			"ns/worker waits, and the scheduler has not said why: its group ns/gang does not exist: Volcano looks at the pod when it does.", ""},
		"nothing, the cluster's own scheduler": {by("default-scheduler"), nil, true,
			"ns/worker waits, and the scheduler has not said why: its schedulerName is default-scheduler, which gives out no shared devices.", ""},
		"nothing, a scheduler that is not there": {by("volcan"), programs(true, "volcano"), true,
			"ns/worker waits, and the scheduler has not said why: its schedulerName is volcan, and no pod of such a scheduler was found.", ""},
		"a gate of Volcano 1.15": {func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: corepod.QueueGate}} }, nil, true,
			`ns/worker waits because of its scheduling gate "scheduling.volcano.sh/queue-allocation-gate": only the scheduler of Volcano 1.15 removes it: ` +
				"make the pod again without the annotation scheduling.volcano.sh/queue-allocation-gate.", ""},
		"what the API server said of gates that are gone": {func(p *corev1.Pod) { told(p, corev1.PodReasonSchedulingGated, "non-empty scheduling gates") }, nil, true,
			"ns/worker waits, and the scheduler has not said why: it does so within seconds, if it runs: see kubectl deviceshare doctor.", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := podOf("worker", 1)
			c.pod(p)
			s := stateOf(t, p)
			if c.group {
				s.Add(gangOf(2))
			}
			s.Installation = c.installed
			w := whyOf(t, s, "worker")
			if w.Answer != c.answer || strings.Join(w.Notes, "") != c.note {
				t.Errorf("got %+v, want %q, %q", w, c.answer, c.note)
			}
			if text := w.Text(view.Paint{}); c.note != "" && !strings.HasSuffix(text, "\nBesides, "+c.note+".\n") {
				t.Errorf("people read %q", text)
			}
		})
	}
}

func TestAPlanIsOfferedToPodsThatMovesMayHelp(t *testing.T) {
	for name, c := range map[string]struct {
		edit    func(*corev1.Pod)
		offered bool
	}{
		"a pod that lacks room":         {func(*corev1.Pod) {}, true},
		"a request that cannot be read": {func(p *corev1.Pod) { p.Annotations[wire.UserMode] = "fast" }, false},
		"claims, which no plan is for":  {func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "nic"}} }, false},
	} {
		p := told(podOf("worker", 1), corev1.PodReasonUnschedulable, "no room")
		p.Spec.SchedulerName = "volcano"
		c.edit(p)
		if w := whyOf(t, stateOf(t, p, gangOf(1)), "worker"); (w.Plan != "") != c.offered {
			t.Errorf("%s: the plan is %q", name, w.Plan)
		}
	}
}

func TestACaptureWithHashedNamesSaysWhereItsSentencesAre(t *testing.T) {
	s := stateOf(t, told(podOf("worker", 1), corev1.PodReasonUnschedulable, "secret"), gangOf(1)).Hash([]byte("salt"))
	status := view.Read(s, factory.New()).Status()
	if len(status.Longest) != 1 || !strings.Contains(status.Longest[0].Answer, "kubectl deviceshare simulate finds them again") {
		t.Errorf("got %+v", status.Longest)
	}
}

func TestAPodOnANodeIsToldOfTheContainerThatDoesNotStart(t *testing.T) {
	for reason, want := range map[string]string{
		"":                           "ns/worker does not wait: it is on node node with 1GiB of device 1.",
		"PodInitializing":            "ns/worker does not wait: it is on node node with 1GiB of device 1.",
		"CreateContainerConfigError": "with 1GiB of device 1; its container main has not started (CreateContainerConfigError), which kubectl describe pod -n ns worker explains.",
	} {
		p := podOf("worker", 1)
		p.Spec.NodeName = "node"
		annotations, err := wire.PlacementAnnotations(sharing.Placement{Node: "node", Containers: []sharing.ContainerShares{
			{Container: "main", Shares: []sharing.Share{{Device: "GPU-node-1", Mode: sharing.HAMiCore, Memory: sharing.GiB}}},
		}}, 1, 1700000000)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(p.Annotations, annotations)
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "pull image registry.example/secret"},
		}}}
		s := stateOf(t, p)
		if w := whyOf(t, s, "worker"); !strings.HasSuffix(w.Answer, want) {
			t.Errorf("%s: got %q", reason, w.Answer)
		}
		if kept := s.Pods[0].Status.ContainerStatuses[0].State.Waiting; kept == nil || kept.Message != "" {
			t.Errorf("a capture keeps %+v", kept)
		}
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

func nodeOf(t *testing.T, name string, devices int) *corev1.Node {
	t.Helper()
	inv := sharing.Inventory{Node: name}
	for i := range devices {
		d := sharingtest.Device(i, "A100-40", sharing.HAMiCore)
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
