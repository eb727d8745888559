// SPDX-License-Identifier: Apache-2.0

package compatibility_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	deviceconfig "volcano.sh/volcano/pkg/scheduler/api/devices/config"
	"volcano.sh/volcano/pkg/scheduler/api/devices/nvidia/vgpu"

	"deviceshare/config"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// inventory makes a node of healthy devices in one mode; indexes are sparse.
func inventory(mode sharing.Mode, ids ...sharing.DeviceID) sharing.Inventory {
	inv := sharing.Inventory{Node: "node1"}
	for i, id := range ids {
		inv.Devices = append(inv.Devices, sharing.Device{
			ID: id, Index: 2 * i, Model: "NVIDIA A100-SXM4-80GB", Memory: 80000 * sharing.MiB, Cores: 100,
			MaxShares: 10, Healthy: true, Mode: mode,
		})
	}
	return inv
}

// volcanoReads gives the node's annotations to Volcano. The handshake is in the
// state Volcano itself puts it after it has seen ours: in the state before, it
// calls the API server of the cluster it runs in, and there is none.
func volcanoReads(t *testing.T, inv sharing.Inventory, factor int64) *vgpu.GPUDevices {
	t.Helper()
	a, err := wire.NodeAnnotations(inv, factor)
	if err != nil {
		t.Fatal(err)
	}
	a[wire.NodeHandshake] = "Requesting_" + time.Now().Format("2006.01.02 15:04:05")
	gs := vgpu.NewGPUDevices(inv.Node, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: inv.Node, Annotations: a}})
	if gs == nil {
		t.Fatalf("Volcano sees no devices in %s", a[wire.NodeRegister])
	}
	return gs
}

// partitioned makes a node of one A100 in mode mig, and what Volcano makes of it
// with the geometries of our ConfigMap. Volcano takes the ConfigMap from the
// cluster only, so the test puts the geometries where it would.
func partitioned(t *testing.T) (sharing.Inventory, *vgpu.GPUDevices) {
	t.Helper()
	inv := inventory(sharing.MIG, "GPU-a")
	d := &inv.Devices[0]
	profile := func(name string, memory int64, compute, size int, starts ...int) sharing.Profile {
		return sharing.Profile{Name: name, Memory: sharing.MiBs(memory), Compute: compute, Size: size, Starts: starts}
	}
	d.MIG = &sharing.Partitioning{
		Slices: 8, Geometries: config.DefaultDevice().Geometries(d.Model),
		Profiles: []sharing.Profile{
			profile("1g.10gb", 9728, 1, 1, 0, 1, 2, 3, 4, 5, 6), profile("2g.20gb", 19968, 2, 2, 0, 2, 4),
			profile("3g.40gb", 40192, 3, 4, 0, 4), profile("7g.80gb", 80896, 7, 8, 0),
		},
	}
	d.Memory, d.MaxShares = 80896*sharing.MiB, 7
	gs := volcanoReads(t, inv, 1)
	handler, ok := vgpu.GetSharingHandler("mig")
	if !ok {
		t.Fatal("Volcano has no mode mig")
	}
	gs.Mode, gs.Sharing = "mig", handler
	for _, g := range volcanoConfig(t).NvidiaConfig.MigGeometriesList {
		for _, model := range g.Models {
			if model == "A100-SXM4-80GB" {
				gs.Device[0].MigTemplate = g.Geometries
			}
		}
	}
	return inv, gs
}

// container asks for devices by Volcano's names; negative means it does not.
func container(name string, number, memory, cores int64) corev1.Container {
	limits := corev1.ResourceList{}
	for resourceName, amount := range map[string]int64{
		deviceconfig.VolcanoVGPUNumber: number, deviceconfig.VolcanoVGPUMemory: memory, deviceconfig.VolcanoVGPUCores: cores,
	} {
		if amount >= 0 {
			limits[corev1.ResourceName(resourceName)] = *resource.NewQuantity(amount, resource.DecimalSI)
		}
	}
	return corev1.Container{Name: name, Resources: corev1.ResourceRequirements{Limits: limits}}
}

func pod(uid string, containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-" + uid, UID: types.UID(uid)},
		Spec:       corev1.PodSpec{Containers: containers},
	}
}

// refs is what our reader is told of the containers.
func refs(p *corev1.Pod) []wire.ContainerRef {
	var out []wire.ContainerRef
	for _, c := range p.Spec.Containers {
		_, number := c.Resources.Limits[wire.ResourceNumber]
		_, memory := c.Resources.Limits[wire.ResourceMemory]
		out = append(out, wire.ContainerRef{Name: c.Name, Asks: number || memory})
	}
	return out
}

// volcanoDecides lets Volcano place the pod and returns the annotations it wrote.
func volcanoDecides(t *testing.T, gs *vgpu.GPUDevices, p *corev1.Pod) map[string]string {
	t.Helper()
	vgpu.VGPUEnable = true
	client := fake.NewClientset(p)
	if err := gs.Allocate(client, p); err != nil {
		t.Fatal(err)
	}
	got, err := client.CoreV1().Pods(p.Namespace).Get(context.Background(), p.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return got.Annotations
}

// placed writes a placement on a pod as our scheduler does.
func placed(t *testing.T, uid string, placement sharing.Placement, factor int64) *corev1.Pod {
	t.Helper()
	a, err := wire.PlacementAnnotations(placement, factor, time.Now().Unix())
	if err != nil {
		t.Fatal(err)
	}
	p := pod(uid)
	p.Annotations = a
	return p
}

// share is a share of mode hami-core.
func share(id sharing.DeviceID, mib int64, cores sharing.Percent) sharing.Share {
	return sharing.Share{Device: id, Mode: sharing.HAMiCore, Memory: sharing.MiBs(mib), Cores: cores}
}

func app(name string, shares ...sharing.Share) sharing.ContainerShares {
	return sharing.ContainerShares{Container: name, Shares: shares}
}
