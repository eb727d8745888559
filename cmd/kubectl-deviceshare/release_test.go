// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// publishing is a node whose device plugin says this of its devices.
func publishing(t *testing.T, reasons ...string) *corev1.Node {
	t.Helper()
	inv := sharing.Inventory{Node: "n1"}
	for i, reason := range reasons {
		inv.Devices = append(inv.Devices, sharing.Device{ID: sharing.DeviceID("GPU-" + string(rune('a'+i))), Index: i, Model: "T4", Memory: sharing.GiB, Cores: 100, MaxShares: 10,
			Mode: sharing.HAMiCore, Healthy: reason == "", Reason: reason})
	}
	text, err := wire.EncodeInventory(inv)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{wire.NodeInventory: text}}}
}

// newReleaser returns a command whose looks follow each other at once, and what it writes.
func newReleaser() (r *releaser, out, said *bytes.Buffer) {
	streams, _, out, said := genericiooptions.NewTestIOStreams()
	return &releaser{options: &options{streams: streams}, duration: time.Hour, period: time.Nanosecond}, out, said
}

func TestReleaseReturnsWhenTheDevicePluginDoesNotUseTheDriver(t *testing.T) {
	held := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", Annotations: map[string]string{wire.PodPlacement: "{}"}}, Spec: corev1.PodSpec{NodeName: "n1"}}
	core := fake.NewClientset(publishing(t, ""), held)
	r, out, said := newReleaser()
	looks := []*corev1.Node{publishing(t, "", ""), publishing(t, "its mode becomes hami-core when ns/a is gone", wire.ReasonReleased),
		publishing(t, "it is still in use", "it is still in use", "leave mps: busy", wire.ReasonReleased), publishing(t, wire.ReasonReleased, wire.ReasonReleased)}
	core.PrependReactor("get", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
		n := looks[0]
		looks = looks[1:]
		n.Annotations[wire.NodeReleaseDriver] = "set"
		return true, n, nil
	})
	if err := r.releaseDriver(t.Context(), core, "n1"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"does not use the driver", "1 pods with devices still run there, and have to leave first: ns/a", "kubectl deviceshare release n1 --end"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it says %q, without %q", out, want)
		}
	}
	for _, want := range []string{"node n1 takes no new pods with devices until 20", "waiting for the device plugin\n", "device 0: its mode becomes hami-core when ns/a is gone\n",
		"device 0: it is still in use; device 2: leave mps: busy\n"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("on the way it says %q, without %q", said, want)
		}
	}
	patches := 0
	for _, a := range core.Actions() {
		if p, is := a.(k8stesting.PatchAction); is {
			patches++
			if p.GetPatchType() != types.MergePatchType || !strings.HasPrefix(string(p.GetPatch()), `{"metadata":{"annotations":{"volcano.sh/vgpu-release-driver":"20`) {
				t.Errorf("written %s", p.GetPatch())
			}
		}
	}
	if patches != 1 {
		t.Errorf("%d writes, want 1", patches)
	}
}

func TestAReleaseThatCannotBeSaysWhatToDo(t *testing.T) {
	ended := publishing(t, "")
	for name, c := range map[string]struct {
		node *corev1.Node
		look func(*corev1.Node) // what others do before the first look
		want string
	}{
		"another node":       {&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}, nil, "there is no node n1: see kubectl get nodes"},
		"no device plugin":   {&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}, nil, "does the device plugin run there?"},
		"ended by others":    {ended, func(n *corev1.Node) { delete(n.Annotations, wire.NodeReleaseDriver) }, "somebody has ended the release"},
		"a broken inventory": {ended, func(n *corev1.Node) { n.Annotations[wire.NodeInventory] = "{" }, "read the devices of node n1"},
	} {
		core := fake.NewClientset(c.node.DeepCopy())
		if c.look != nil {
			core.PrependReactor("get", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) {
				n := c.node.DeepCopy()
				n.Annotations[wire.NodeReleaseDriver] = "set"
				c.look(n)
				return true, n, nil
			})
		}
		r, _, _ := newReleaser()
		if err := r.releaseDriver(t.Context(), core, "n1"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		n, err := core.CoreV1().Nodes().Get(context.Background(), "n1", metav1.GetOptions{})
		if c.look == nil && err == nil && n.Annotations[wire.NodeReleaseDriver] != "" {
			t.Errorf("%s: the annotation is left behind", name)
		}
	}
}

func TestAnInterruptedReleaseSaysHowItIsTakenBack(t *testing.T) {
	core := fake.NewClientset(publishing(t, ""))
	r, _, _ := newReleaser()
	r.period = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	core.PrependReactor("get", "nodes", func(k8stesting.Action) (bool, runtime.Object, error) { cancel(); return false, nil, nil })
	if err := r.releaseDriver(ctx, core, "n1"); err == nil || !strings.Contains(err.Error(), "take it back with: kubectl deviceshare release n1 --end") {
		t.Errorf("%v", err)
	}
	r, out, _ := newReleaser()
	if err := r.endRelease(t.Context(), core, "n1"); err != nil || out.String() != "The device plugin of node n1 uses the driver again.\n" {
		t.Errorf("%q, %v", out, err)
	}
	if n, err := core.Tracker().Get(corev1.SchemeGroupVersion.WithResource("nodes"), "", "n1"); err != nil || n.(*corev1.Node).Annotations[wire.NodeReleaseDriver] != "" {
		t.Errorf("%v, %v", n, err)
	}
}

func TestMistakesOfReleaseAreToldTogether(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*releaser)
		given  bool
		want   []string
	}{
		"as it is":      {func(*releaser) {}, false, nil},
		"a day":         {func(r *releaser) { r.duration = 24 * time.Hour }, true, nil},
		"too long":      {func(r *releaser) { r.duration = 25 * time.Hour }, true, []string{"--for 25h0m0s: want a time from 1s to 24h"}},
		"no time":       {func(r *releaser) { r.duration = 0 }, true, []string{"--for 0s"}},
		"all together":  {func(r *releaser) { r.duration, r.end, r.from, r.watch = -1, true, "f", true }, true, []string{"--for", "--end", "--from", "--watch"}},
		"end with time": {func(r *releaser) { r.end = true }, true, []string{"--for does not go with --end"}},
	} {
		r, _, _ := newReleaser()
		c.change(r)
		err := r.findMistakes(c.given)
		if (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
		for _, word := range c.want {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %v does not say %q", name, err, word)
			}
		}
	}
}
