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

	"deviceshare/config"
	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// hopperAndAmpere is a machine whose first card enters mode mig at once, and whose
// second one wants a reset.
func hopperAndAmpere(p *program) {
	first := drivertest.A100(0)
	first.Model = "NVIDIA H100 80GB HBM3"
	p.driver = drivertest.New(first, drivertest.A100(1))
	table := "config 1\nmonitor 2\ngpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\n"
	if err := os.WriteFile(filepath.Join(p.dir, "mig-minors"), []byte(table), 0o600); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(p.dir, "caps"), 0o755); err != nil {
		p.t.Fatal(err)
	}
	for _, name := range []string{"nvidia-cap12", "nvidia-cap13"} {
		if err := os.WriteFile(filepath.Join(p.dir, "caps", name), nil, 0o600); err != nil {
			p.t.Fatal(err)
		}
	}
	p.tune = func(o *options) {
		o.base.MIGMinors, o.base.CapsRoot = filepath.Join(p.dir, "mig-minors"), filepath.Join(p.dir, "caps")
	}
}

// placePart makes a pod with a partition of a device, as our scheduler does.
func (p *program) placePart(d sharing.Device, part sharing.Partition) *corev1.Pod {
	p.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "part", UID: "uid-part"},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{wire.ResourceNumber: resource.MustParse("1"), wire.ResourceMemory: resource.MustParse("19968")},
		}}}},
	}
	share := sharing.Share{Device: d.ID, Mode: sharing.MIG, Memory: sharing.MiBs(19968), Cores: 28, Partition: part}
	var err error
	pod.Annotations, err = wire.PlacementAnnotations(sharing.Placement{
		Node: "n", GeometryHash: config.DefaultDevice().GeometryHash(),
		Containers: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{share}}},
	}, 1, 1)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.api.CoreV1().Pods("ns").Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
		p.t.Fatal(err)
	}
	if err := p.kubelet.Admit(pod); err != nil {
		p.t.Fatal(err)
	}
	return pod
}

// partOf is the partition that the record of the one pod names.
func (p *program) partOf() string {
	records := p.plugin.store.All()
	if len(records) != 1 {
		return ""
	}
	return records[0].Devices[0].Partition.UUID
}

func TestADeviceInModeMIGIsCutForItsPodsAndMadeWholeAgain(t *testing.T) {
	p := launch(t, func(p *program) { p.configure(`{"nodeconfig":[{"name":"n","operatingmode":"mig"}]}`) }, hopperAndAmpere)
	p.await("the first device", func() bool {
		inv := p.inventory()
		return len(inv.Devices) == 2 && inv.Devices[0].Mode == sharing.MIG && inv.Devices[0].Healthy
	})
	p.kubelet.Await(t, "the slots", func(healthy, _, _ int) bool { return healthy >= 10 })
	p.event("GPUModeNeedsAdministrator", "--gpu-reset")
	ready := p.inventory()
	if second := ready.Devices[1]; second.Healthy || !strings.Contains(second.Reason, "nvidia-smi -i "+string(second.ID)+" -mig 1") {
		t.Errorf("the second device is healthy %v, reason %q: it wants a reset by its administrator", second.Healthy, second.Reason)
	}
	pod := p.placePart(ready.Devices[0], sharing.Partition{Profile: "2g.20gb", Start: 2, Size: 2, Geometry: "group2", Position: 1})
	if _, err := p.kubelet.Begin(context.Background(), pod, "main"); err != nil {
		t.Fatal(err)
	}
	first := p.partOf()
	if id, _, _, ok := p.driver.Locate(first); !ok || id != ready.Devices[0].ID {
		t.Errorf("the container has %q on device %s, %v", first, id, ok)
	}
	p.driver.Reboot()
	if _, err := p.kubelet.Begin(context.Background(), pod, "main"); err != nil {
		t.Fatalf("after the reboot: %v", err)
	}
	if _, _, _, ok := p.driver.Locate(p.partOf()); !ok || p.partOf() == first {
		t.Errorf("after the reboot the container has %q, before %q", p.partOf(), first)
	}
	p.configure(`{"nodeconfig":[{"name":"n","operatingmode":"hami-core"}]}`)
	p.await("the reason", func() bool {
		inv := p.inventory()
		return inv.Devices[0].Mode == sharing.HAMiCore && strings.Contains(inv.Devices[0].Reason, "ns/part")
	})
	if on, _, err := p.driver.MIGMode(ready.Devices[0].ID); !on || err != nil {
		t.Errorf("the mode was taken from under the pod: %v", err)
	}
	if err := p.api.CoreV1().Pods("ns").Delete(context.Background(), "part", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.await("the whole device", func() bool { return p.inventory().Devices[0].Healthy })
	if on, _, err := p.driver.MIGMode(ready.Devices[0].ID); on || err != nil {
		t.Errorf("partitioning is on: %v, %v", on, err)
	}
}

func TestAFreshNodeKeepsTheInstancesOfOthersUntilItsDevicesAreGivenAMode(t *testing.T) {
	hopper := drivertest.A100(0).UUID
	made := func(p *program) {
		hopperAndAmpere(p)
		p.driver.Switch(hopper, true)
		if err := p.driver.Open(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.driver.CreateGPUInstance(hopper, "2g.20gb", 2); err != nil {
			t.Fatal(err)
		}
	}
	p := launch(t, made)
	p.event("GPUModeNeedsAdministrator", "2g.20gb at slices 2 to 3")
	p.await("the other device", func() bool { inv := p.inventory(); return len(inv.Devices) == 2 && inv.Devices[1].Healthy })
	if d := p.inventory().Devices[0]; d.Healthy || !strings.Contains(d.Reason, "filterdevices") {
		t.Errorf("the device is healthy %v, reason %q", d.Healthy, d.Reason)
	}
	if all, err := p.driver.Instances(hopper); err != nil || len(all) != 1 {
		t.Fatalf("the device has %v, %v", all, err)
	}
	p.configure(`{"nodeconfig":[{"name":"n","operatingmode":"time-slicing"}]}`)
	p.await("the whole device", func() bool { d := p.inventory().Devices[0]; return d.Healthy && d.Mode == sharing.TimeSlicing })
}
