// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	k8stesting "k8s.io/client-go/testing"

	"deviceshare/config"
	"deviceshare/deviceplugin/modes/modestest"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// place makes a pod with a share of a device in the mode it is published in, and
// admits it at the kubelet. A pod of a controller is made again when it goes.
func (p *program) place(name string, d sharing.Device, controlled bool) *corev1.Pod {
	p.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{wire.ResourceNumber: resource.MustParse("1"), wire.ResourceMemory: resource.MustParse("1000")},
		}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
	if controlled {
		yes := true
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", Controller: &yes}}
	}
	share := sharing.Share{Device: d.ID, Mode: d.Mode, Memory: sharing.MiBs(1000)}
	annotations, err := wire.PlacementAnnotations(sharing.Placement{
		Node: "n", Containers: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{share}}},
	}, 1, 1)
	if err != nil {
		p.t.Fatal(err)
	}
	pod.Annotations = annotations
	if _, err := p.api.CoreV1().Pods("ns").Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
		p.t.Fatal(err)
	}
	if err := p.kubelet.Admit(pod); err != nil {
		p.t.Fatal(err)
	}
	return pod
}

// evictions are the names of the pods whose eviction was asked for.
func (p *program) evictions() string {
	var names []string
	for _, a := range p.api.Actions() {
		if a.Matches("delete", "pods") {
			names = append(names, a.(k8stesting.DeleteAction).GetName())
		}
	}
	return strings.Join(names, ",")
}

// offers reports whether the devices are published in these modes, ready or not.
func (p *program) offers(modes ...sharing.Mode) func() bool {
	return func() bool {
		inv := p.inventory()
		for i, m := range modes {
			if len(inv.Devices) != len(modes) || inv.Devices[i].Mode != m {
				return false
			}
		}
		return true
	}
}

func TestAModeChangeWaitsForThePodsOfTheDeviceAndNewOnesArePlacedAnew(t *testing.T) {
	p := launch(t, func(p *program) { p.configure(`{"nodeconfig":[{"name":"n","operatingmode":"hami-core"}]}`) })
	p.kubelet.Await(t, "the slots", func(healthy, _, _ int) bool { return healthy == 20 })
	p.await("the devices", p.offers(sharing.HAMiCore, sharing.HAMiCore))
	d := p.inventory().Devices[1]
	running := p.place("running", d, true)
	if _, err := p.kubelet.Begin(context.Background(), running, "main"); err != nil {
		t.Fatal(err)
	}
	late, bare := p.place("late", d, true), p.place("bare", d, false)

	p.configure(`{"nodeconfig":[{"name":"n","devices":[{"index":1,"mode":"time-slicing"}]}]}`)
	p.await("the new mode", p.offers(sharing.HAMiCore, sharing.TimeSlicing))
	p.await("the reason", func() bool {
		got := p.inventory().Devices[1]
		return !got.Healthy && strings.Contains(got.Reason, "ns/running")
	})
	p.event("GPUModeWaiting", "ns/running")
	p.event("DeviceModeKept", "is to be in mode time-slicing and stays in mode hami-core")
	if q := p.node().Status.Capacity[wire.ResourceMemory]; q.Value() != 2*81920 {
		t.Errorf("the node offers %v MiB: what is held on the device would be taken from the other", q.Value())
	}
	if _, err := p.kubelet.Begin(context.Background(), running, "main"); err != nil {
		t.Errorf("the container that runs may not start again: %v", err)
	}
	for _, pod := range []*corev1.Pod{late, bare} {
		if _, err := p.kubelet.Begin(context.Background(), pod, "main"); err == nil || !strings.Contains(err.Error(), "is in mode time-slicing now; the pod was placed in hami-core") {
			t.Errorf("pod %s is told %v", pod.Name, err)
		}
	}
	p.event("DevicePlacedAnew", "is in mode time-slicing now")
	p.event("DevicePlacementRefused", "kubectl delete pod -n ns bare")
	p.await("the eviction", func() bool { return p.evictions() == "late" })

	for _, name := range []string{"running", "bare"} {
		if err := p.api.CoreV1().Pods("ns").Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p.await("the device", func() bool { return p.inventory().Devices[1].Healthy })
	p.event("GPUModeChanged", "is in mode time-slicing")
	if _, err := p.kubelet.Begin(context.Background(), p.place("new", p.inventory().Devices[1], true), "main"); err != nil {
		t.Errorf("a pod in the new mode: %v", err)
	}
}

func TestModesByUUIDIndexAndModelOverTheModeOfTheNode(t *testing.T) {
	p := launch(t)
	p.await("the devices", p.offers(sharing.HAMiCore, sharing.HAMiCore))
	first := string(p.inventory().Devices[0].ID)
	for _, c := range []struct {
		text string
		want []sharing.Mode
	}{
		{`"operatingmode":"time-slicing"`, []sharing.Mode{sharing.TimeSlicing, sharing.TimeSlicing}},
		{`"operatingmode":"time-slicing","devices":[{"uuid":"` + first + `","mode":"hami-core"}]`, []sharing.Mode{sharing.HAMiCore, sharing.TimeSlicing}},
		{`"devices":[{"index":1,"mode":"time-slicing"}]`, []sharing.Mode{sharing.HAMiCore, sharing.TimeSlicing}},
		{`"devices":[{"index":1,"mode":"hami-core"},{"model":"A100","mode":"time-slicing"}]`, []sharing.Mode{sharing.TimeSlicing, sharing.HAMiCore}},
		{`"operatingmode":""`, []sharing.Mode{sharing.HAMiCore, sharing.HAMiCore}},
	} {
		p.configure(`{"nodeconfig":[{"name":"n",` + c.text + `}]}`)
		p.await(c.text, func() bool {
			inv := p.inventory()
			return p.offers(c.want...)() && inv.Devices[0].Healthy && inv.Devices[1].Healthy
		})
	}
}

func TestTheNodeSaysWhichConfigurationItGoesBy(t *testing.T) {
	text := `{"nodeconfig":[{"name":"n","devicesplitcount":3}]}`
	p := launch(t, func(p *program) { p.configure(text) })
	node, problems := config.LoadNode([]byte(text))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	device := config.DefaultDevice()
	want := wire.ConfigVersions{Device: device.Hash(), Node: node.Hash(), Geometry: device.GeometryHash()}
	p.await("the annotation", func() bool {
		got, err := wire.DecodeConfig(p.node().Annotations[wire.NodeConfig])
		return err == nil && got == want
	})
}

// library writes the file that containers get.
func (p *program) library(text []byte) {
	p.t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, "lib", "libvgpu.so"), text, 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// healthy reports whether both devices are published as healthy, or as broken.
func (p *program) healthy(want bool) func() bool {
	return func() bool {
		inv := p.inventory()
		return len(inv.Devices) == 2 && inv.Devices[0].Healthy == want && inv.Devices[1].Healthy == want
	}
}

func TestANodeWhoseLibraryIsCutOffersNoDevicesAndSaysWhy(t *testing.T) {
	p := launch(t, func(p *program) {
		whole := modestest.Library()
		p.library(whole[:len(whole)/2])
	})
	p.await("the devices are known", func() bool { return len(p.inventory().Devices) == 2 })
	for _, d := range p.inventory().Devices {
		if d.Healthy || !strings.Contains(d.Reason, "cannot prepare containers in mode hami-core") || !strings.Contains(d.Reason, "libvgpu.so: its 2048 bytes end") {
			t.Errorf("device %s: healthy %v, %q", d.ID, d.Healthy, d.Reason)
		}
	}
	p.event("GPUModeUnusable", "its 2048 bytes end")
}

// A disk that is full at the start is one such cause: nothing but a look tells when it is mended.
func TestANodeWhoseLibraryIsMendedOffersItsDevices(t *testing.T) {
	whole := modestest.Library()
	p := launch(t, func(p *program) { p.library(whole[:len(whole)/2]) })
	p.event("GPUModeUnusable", "its 2048 bytes end")
	p.await("the devices are not offered", p.healthy(false))
	p.library(whole)
	p.await("the devices are offered", p.healthy(true))
	p.kubelet.Await(t, "the slots", func(healthy, _, _ int) bool { return healthy == 20 })
}
