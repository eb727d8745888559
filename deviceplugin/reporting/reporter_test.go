// SPDX-License-Identifier: Apache-2.0

package reporting

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	events "k8s.io/client-go/tools/record"

	"deviceshare/config/signing"
	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/metrics"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

func TestARecordOfTheKubeletIsReportedOncePerChangeWhicheverPodsStart(t *testing.T) {
	recorder := events.NewFakeRecorder(100)
	r := &Reporter{node: &corev1.ObjectReference{}, recorder: recorder, metrics: metrics.New("node", nil, nil)}
	a := agent.New(node.Config{Node: "n"}, r)
	missing := func(pod int) error {
		return fmt.Errorf("get resources of pod ns/p%d: %w", pod, kubelet.ErrNoPodResources)
	}
	steps := []struct {
		name   string
		part   node.Part
		err    error
		events int
	}{
		{"a record that serves", node.PartKubelet, nil, 0},
		{"a kubelet without Get", node.PartResources, missing(1), 1},
		{"at the start of another pod", node.PartResources, missing(2), 0},
		{"the other record has trouble of its own", node.PartKubelet, errors.New("no such file"), 1},
		{"which does not make the first one new", node.PartResources, missing(3), 0},
		{"the kubelet was updated", node.PartResources, nil, 1},
		{"and serves on", node.PartResources, nil, 0},
		{"and was downgraded", node.PartResources, missing(4), 1},
	}
	for _, s := range steps {
		a.SetPart(s.part, s.err)
		if n := len(recorder.Events); n != s.events {
			t.Errorf("%s: %d events, want %d", s.name, n, s.events)
		}
		for len(recorder.Events) > 0 {
			<-recorder.Events
		}
	}
}

func TestAPassingStateOfTheAmountsIsToldOncePerReasonAndNotWhenItEnds(t *testing.T) {
	recorder := events.NewFakeRecorder(100)
	r := &Reporter{node: &corev1.ObjectReference{}, recorder: recorder, metrics: metrics.New("node", nil, nil)}
	a := agent.New(node.Config{Node: "n"}, r)
	for _, obstacle := range []error{nil, errors.New("held"), errors.New("held"), errors.New("remembered"), nil, nil, errors.New("held")} {
		a.SetPart(node.PartAmounts, obstacle)
	}
	var told []string
	for len(recorder.Events) > 0 {
		told = append(told, <-recorder.Events)
	}
	const event = "Warning DeviceAmountsInTransition "
	if want := []string{event + "held", event + "remembered", event + "held"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestAMisplacedPodIsToldOnceWhateverBecomesOfIt(t *testing.T) {
	recorder := events.NewFakeRecorder(100)
	recorder.IncludeObject = true
	r := &Reporter{node: &corev1.ObjectReference{}, recorder: recorder, metrics: metrics.New("node", nil, nil)}
	a := agent.New(node.Config{Node: "n"}, r)
	misplaced := func(fate node.Fate, why string) {
		a.Send(node.Misplaced{Owner: "uid", Namespace: "ns", Pod: "p", Fate: fate, Why: why})
	}
	misplaced(node.Evicted, "another mode")
	misplaced(node.Evicted, "another mode")
	misplaced(node.Kept, "it began meanwhile")
	if len(recorder.Events) != 1 {
		t.Fatalf("%d events, want 1", len(recorder.Events))
	}
	const anew = "Warning DevicePlacedAnew evicting the pod so that it is placed anew, since this node cannot start it as it was placed: another mode"
	if told := <-recorder.Events; !strings.HasPrefix(told, anew) {
		t.Errorf("told %q", told)
	}
	a.Send(node.OwnerGone{Owner: "uid"})
	misplaced(node.Kept, "it has run")
	if told := <-recorder.Events; !strings.HasPrefix(told, "Warning DevicePlacementRefused this node cannot start the pod as it was placed: it has run") {
		t.Errorf("told %q", told)
	}
}

func TestARefusedContainerIsToldByTheEventOfItsCause(t *testing.T) {
	recorder := events.NewFakeRecorder(100)
	r := &Reporter{node: &corev1.ObjectReference{}, recorder: recorder, metrics: metrics.New("node", nil, nil)}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid"}}
	for want, err := range map[string]error{
		"Warning DevicePlacementUnsigned prepare: ": fmt.Errorf("prepare: %w", &signing.Unsigned{Why: "why"}),
		"Warning DevicePrepareFailed prepare: ":     errors.New("prepare: why"),
	} {
		r.Refused(pod, err)
		if got := <-recorder.Events; !strings.HasPrefix(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	}
}

func TestWhoeverReplacesTheDriverIsToldWhichPodsStandInTheWay(t *testing.T) {
	recorder := events.NewFakeRecorder(100)
	r := &Reporter{node: &corev1.ObjectReference{}, recorder: recorder, metrics: metrics.New("node", nil, nil)}
	a := agent.New(node.Config{Node: "n"}, r)
	state := func(s string) {
		a.Send(node.Labelled{Labels: map[string]string{"nvidia.com/gpu-driver-upgrade-state": s}})
	}
	share := func(mode sharing.Mode) sharing.Placement {
		return sharing.Placement{Containers: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{{Device: "GPU-0", Mode: mode}}}}}
	}
	state("upgrade-required")
	a.Send(node.Holdings{Pods: []node.Holding{
		{Owner: "1", Namespace: "ns", Pod: "a", Placement: share(sharing.HAMiCore)}, {Owner: "2", Namespace: "ns", Pod: "b", Placement: share(sharing.MPS)},
	}})
	state("cordon-required")
	state("pod-restart-required")
	state("upgrade-done")
	const upgrade = "NVIDIA's GPU operator replaces the driver of this node (label nvidia.com/gpu-driver-upgrade-state): new pods wait until it has"
	for _, want := range []string{
		"Normal GPUDriverUpgradePlanned NVIDIA's GPU operator will replace the driver of this node",
		"Normal GPUDriverClaimed " + upgrade + ". The driver cannot be unloaded before these pods have left: ns/b, ns/a",
		"Normal GPUDriverClaimedResolved the devices take new pods again, as far as the driver works",
	} {
		if got := <-recorder.Events; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	}
	if n := len(recorder.Events); n > 0 {
		t.Errorf("%d events more: %s", n, <-recorder.Events)
	}
}

// everything offers every device as hami-core.
type everything struct{}

func (everything) Offer(*node.Facts) node.Offer { return node.Offer{Mode: sharing.HAMiCore} }

func TestAVirtualDeviceWithoutALicenceIsToldOnceAndWhenItHasOne(t *testing.T) {
	recorder := events.NewFakeRecorder(100)
	r := &Reporter{node: &corev1.ObjectReference{}, recorder: recorder, metrics: metrics.New("node", nil, nil)}
	a := agent.New(node.Config{Node: "n"}, r)
	a.Send(node.Configured{Settings: node.Settings{Offers: everything{}}})
	a.Send(node.Scanned{Devices: []node.Facts{{UUID: "GPU-0", Index: 3, Virtual: true}}})
	const day = 24 * 3600
	for _, e := range []node.LicenceRead{
		{Now: 1}, {Now: 2}, {Licence: node.Licence{Valid: true}, Now: 3},
		{Licence: node.Licence{Valid: true, Ends: 60 * day}, Now: 4}, {Licence: node.Licence{Valid: true, Ends: 60 * day}, Now: 54 * day},
	} {
		e.Device = "GPU-0"
		a.Send(e)
	}
	for _, want := range []string{
		"Warning GPULicenceMissing device GPU-0 (index 3) is a vGPU, and it has no licence: ",
		"Normal GPULicenceMissingResolved device GPU-0 (index 3)",
		"Warning GPULicenceMissing device GPU-0 (index 3) is a vGPU, and its licence ends soon and was not renewed (1970-03-02T00:00:00Z): ",
	} {
		if got := <-recorder.Events; !strings.HasPrefix(got, want) {
			t.Errorf("told %q, want %q", got, want)
		}
	}
	if n := len(recorder.Events); n > 0 {
		t.Errorf("%d events more: %s", n, <-recorder.Events)
	}
}
