// SPDX-License-Identifier: Apache-2.0

package containers_test

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// ask is one container with what it asks and what it is given: MiB of each of its
// devices.
type ask struct {
	name    string
	devices []int
	mib     int64
	kind    sharing.ContainerKind
	part    sharing.Partition // of each device, in mode mig
}

// pod makes a pod that the scheduler placed, in the API server.
func (b *bench) pod(name string, asks ...ask) *corev1.Pod {
	b.t.Helper()
	pod := b.draft(name, asks...)
	_, err := b.api.CoreV1().Pods("default").Create(context.Background(), pod, metav1.CreateOptions{})
	must(b.t, err)
	b.await("pod "+name+" in the watch", func() bool { _, ok := b.pods.Pod(sharing.Owner(pod.UID)); return ok })
	return pod
}

// draft makes the object of a placed pod.
func (b *bench) draft(name string, asks ...ask) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec:       corev1.PodSpec{NodeName: node, SchedulerName: "volcano"},
	}
	inv := b.inventory()
	placement := sharing.Placement{Node: node}
	always := corev1.ContainerRestartPolicyAlways
	for _, a := range asks {
		c := corev1.Container{Name: a.name}
		if len(a.devices) > 0 {
			c.Resources.Limits = corev1.ResourceList{
				wire.ResourceNumber: *resource.NewQuantity(int64(len(a.devices)), resource.DecimalSI),
				wire.ResourceMemory: *resource.NewQuantity(a.mib, resource.DecimalSI),
			}
			got := sharing.ContainerShares{Container: a.name, Kind: a.kind}
			for _, d := range a.devices {
				got.Shares = append(got.Shares, sharing.Share{Device: inv.Devices[d].ID, Mode: b.mode, Memory: sharing.MiBs(a.mib), Cores: 2, Partition: a.part})
			}
			placement.Containers = append(placement.Containers, got)
		}
		switch a.kind {
		case sharing.App:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		case sharing.Sidecar:
			c.RestartPolicy = &always
			fallthrough
		default:
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
	}
	annotations, err := wire.PlacementAnnotations(placement, 1, 1)
	must(b.t, err)
	pod.Annotations = annotations
	return pod
}
