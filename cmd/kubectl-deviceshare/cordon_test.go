// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// newCordoner is a call about devices of node n1, and what it writes.
func newCordoner(devices ...string) (*cordoner, *bytes.Buffer) {
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	return &cordoner{options: &options{streams: streams, output: "table"}, node: "n1", devices: devices}, out
}

// asCarol is an API server with these objects, that calls its user carol.
func asCarol(objects ...runtime.Object) *fake.Clientset {
	core := fake.NewClientset(objects...)
	core.PrependReactor("create", "selfsubjectreviews", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, &authenticationv1.SelfSubjectReview{Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: authenticationv1.UserInfo{Username: "carol"}}}, nil
	})
	return core
}

// cordonsOf are the cordons of node n1 at the API server.
func cordonsOf(t *testing.T, core *fake.Clientset) sharing.Cordons {
	t.Helper()
	n, err := core.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cordons, err := wire.ReadCordons(n.Annotations)
	if err != nil {
		t.Fatal(err)
	}
	return cordons
}

func TestDevicesAreCordonedAndTakenBackOneByOne(t *testing.T) {
	core := asCarol(publishing(t, "", "broken", ""))
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	r, _ := newCordoner("2", "GPU-a")
	r.reason, r.duration = "fan", time.Hour
	closed, err := r.cordonDevices(t.Context(), core, now)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := closed.beginSentence("takes no", "take no")+"; "+closed.undoCommand(), "Devices 0 (GPU-a), 2 (GPU-c) of node n1 take no; kubectl deviceshare uncordon n1 0 2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	one := sharing.Cordon{Reason: "fan", By: "carol", Since: "2026-01-02T03:04:05Z", Until: "2026-01-02T04:04:05Z"}
	if got, want := cordonsOf(t, core), (sharing.Cordons{"GPU-a": one, "GPU-c": one}); !maps.Equal(got, want) {
		t.Errorf("written %+v, want %+v", got, want)
	}
	// A device that is broken can be cordoned, too. What has ended goes.
	r, _ = newCordoner("1")
	r.drains = true
	if _, err := r.cordonDevices(t.Context(), core, now.Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	drained := sharing.Cordon{Drains: true, By: "carol", Since: "2026-01-02T05:04:05Z"}
	if got, want := cordonsOf(t, core), (sharing.Cordons{"GPU-b": drained}); !maps.Equal(got, want) {
		t.Errorf("written %+v, want %+v", got, want)
	}
	for _, c := range []struct{ device, want string }{
		{"0", "No such device of node n1 was cordoned.\n"}, {"1", "Node n1 takes new pods again on GPU-b.\n"}, {"1", "No such device of node n1 was cordoned.\n"},
	} {
		r, out := newCordoner(c.device)
		if err := r.uncordonDevices(t.Context(), core, now.Add(2*time.Hour)); err != nil || out.String() != c.want {
			t.Errorf("uncordon %s: %q, %v; want %q", c.device, out, err, c.want)
		}
	}
	n, err := core.CoreV1().Nodes().Get(t.Context(), "n1", metav1.GetOptions{})
	if _, has := n.Annotations[wire.NodeCordon]; has || err != nil {
		t.Errorf("the annotation stays: %v, %v", n.Annotations, err)
	}
}

func TestADeviceThatIsGoneCanBeTakenBack(t *testing.T) {
	n := publishing(t, "")
	n.Annotations[wire.NodeCordon] = `{"version":1,"devices":{"GPU-0badc0de-1":{},"GPU-a":{}}}`
	core := asCarol(n)
	r, out := newCordoner("0badc0de")
	if err := r.uncordonDevices(t.Context(), core, time.Now()); err != nil || out.String() != "Node n1 takes new pods again on GPU-0badc0de-1.\n" {
		t.Errorf("%q, %v", out, err)
	}
	if got := cordonsOf(t, core); len(got) != 1 {
		t.Errorf("left are %v", got)
	}
	r, out = newCordoner()
	r.all = true
	if err := r.uncordonDevices(t.Context(), core, time.Now()); err != nil || out.String() != "Node n1 takes new pods again on GPU-a.\n" {
		t.Errorf("%q, %v", out, err)
	}
	if got := cordonsOf(t, core); len(got) != 0 {
		t.Errorf("left are %v", got)
	}
}

func TestWhatCannotBeCordonedIsSaidAndNothingIsWritten(t *testing.T) {
	unreadable := publishing(t, "", "")
	unreadable.Annotations[wire.NodeCordon] = `{"version":1,"devices":{"GPU-a":{"effect":"Never"}}}`
	alike := publishing(t, "", "")
	for key, text := range alike.Annotations {
		alike.Annotations[key] = strings.ReplaceAll(strings.ReplaceAll(text, "GPU-a", "GPU-1234-a"), "GPU-b", "GPU-1234-b")
	}
	for name, c := range map[string]struct {
		node    *corev1.Node
		devices []string
		want    []string
	}{
		"another node":         {&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, []string{"0"}, []string{"there is no node n1: see kubectl get nodes"}},
		"no device plugin":     {&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, []string{"0"}, []string{"does the device plugin run there?"}},
		"devices not there":    {publishing(t, "", ""), []string{"0", "2", "GPU-x", "GP", ""}, []string{`no device "2"`, `no device "GPU-x"`, `no device "GP"`, `no device ""`, "kubectl deviceshare devices n1 -o wide"}},
		"an ambiguous UUID":    {alike, []string{"1234"}, []string{`"1234" begins the UUIDs of 2 devices of node n1`}},
		"cordons not readable": {unreadable, []string{"0"}, []string{"kubectl deviceshare uncordon n1 --all", `"Never" is not known`}},
	} {
		core := asCarol(c.node.DeepCopy())
		r, _ := newCordoner(c.devices...)
		_, err := r.cordonDevices(t.Context(), core, time.Now())
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
		for _, a := range core.Actions() {
			if a.GetVerb() == "patch" {
				t.Errorf("%s: something is written: %v", name, a)
			}
		}
	}
	core := asCarol(unreadable)
	r, _ := newCordoner()
	r.all = true
	if err := r.uncordonDevices(t.Context(), core, time.Now()); err != nil || len(cordonsOf(t, core)) != 0 {
		t.Errorf("what cannot be read cannot be removed: %v", err)
	}
}

// Whoever else writes between reading and writing is not overwritten.
func TestTwoWhoCordonAtOnceBothGetTheirWay(t *testing.T) {
	core := asCarol(publishing(t, "", ""))
	conflicts := 0
	core.PrependReactor("patch", "nodes", func(a k8stesting.Action) (bool, runtime.Object, error) {
		if conflicts++; conflicts > 1 {
			return false, nil, nil
		}
		if _, err := core.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", "n1"); err != nil {
			return true, nil, err
		}
		other := publishing(t, "", "")
		other.Annotations[wire.NodeCordon] = `{"version":1,"devices":{"GPU-b":{"by":"dave"}}}`
		if err := core.Tracker().Update(corev1.SchemeGroupVersion.WithResource("nodes"), other, ""); err != nil {
			return true, nil, err
		}
		return true, nil, apierrors.NewConflict(corev1.Resource("nodes"), "n1", errors.New("changed"))
	})
	r, _ := newCordoner("0")
	if _, err := r.cordonDevices(t.Context(), core, time.Now()); err != nil {
		t.Fatal(err)
	}
	got := cordonsOf(t, core)
	if names := slices.Sorted(maps.Keys(got)); len(names) != 2 || got["GPU-b"].By != "dave" || got["GPU-a"].By != "carol" {
		t.Errorf("written %+v", got)
	}
	for _, a := range core.Actions() {
		if p, is := a.(k8stesting.PatchAction); is && !strings.Contains(string(p.GetPatch()), `"resourceVersion":`) {
			t.Errorf("written whatever others wrote: %s", p.GetPatch())
		}
	}
}

func TestMistakesOfCordonAreToldTogether(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*cordoner)
		command string
		want    []string
	}{
		"none":              {func(*cordoner) {}, "cordon", nil},
		"no devices":        {func(r *cordoner) { r.devices = nil }, "uncordon", []string{"want devices, or --all"}},
		"devices and --all": {func(r *cordoner) { r.all = true }, "uncordon", []string{"want devices, or --all"}},
		"all at once": {func(r *cordoner) {
			r.duration, r.reason, r.from, r.watch, r.output = time.Millisecond, "a\nb", "file", true, "xml"
		}, "drain", []string{`unknown output "xml"`, "--for 1ms: want a second or more", "--reason: want one line of at most 253 bytes", "--from reads a file, and drain changes a cluster", "--watch does not go with drain"}},
	} {
		r, _ := newCordoner("0")
		c.change(r)
		err := r.findMistakes(r.duration != 0, c.command)
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}

func TestDevicesAreNamedAsPeopleNameThem(t *testing.T) {
	inv := sharing.Inventory{Node: "n1"}
	for i, id := range []string{"GPU-12345678-aaaa", "GPU-1234abcd-bbbb", "GPU-00000007-cccc"} {
		inv.Devices = append(inv.Devices, sharing.Device{ID: sharing.DeviceID(id), Index: 3 * i})
	}
	for name, want := range map[string]string{
		"0": "[0]", "3": "[3]", "6": "[6]", "1": "[]", "GPU-12345678-aaaa": "[0]", "12345678": "[0]", "GPU-1234a": "[3]", "0000": "[6]", "1234": "[0 3]",
		"GPU-12": "[]", "gpu-12345678": "[]", "00000007-cccc": "[6]", "-1": "[]",
	} {
		var got []int
		for _, id := range matchDevices(inv, name) {
			d, _ := inv.Device(id)
			got = append(got, d.Index)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%q means %v, want %s", name, got, want)
		}
	}
}
