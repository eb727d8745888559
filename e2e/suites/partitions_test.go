// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/e2e/report"
	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
)

// partitioned is the machine of the suites about mode mig: two devices of eight
// slices and one of four.
const partitioned = `fakegpu 1
driver 580.95.05 cuda 13.0
gpu model="NVIDIA A100-SXM4-80GB" memory=81920MiB cc=8.0 numa=0 mig=enabled pci=0000:07:00.0 sms=108
gpu model="NVIDIA A100-SXM4-80GB" memory=81920MiB cc=8.0 numa=0 mig=enabled pci=0000:0f:00.0 sms=108
gpu model="NVIDIA A30" memory=24576MiB cc=8.0 numa=1 mig=enabled pci=0000:47:00.0 sms=56
`

// allMIG puts every device of the real node into mode mig.
const allMIG = `{"nodeconfig":[{"name":"` + sandbox.NodeName + `","operatingmode":"mig"}]}`

// testPartitions swaps the node's GPUs for ones in mode mig and lets pods come to
// them, with administrators, reboots and edits in between.
func testPartitions(t *testing.T, w *world) {
	w.takeTurn(t)
	ctx, u := w.user(t, "partitions", 2*time.Minute)
	if err := u.ConfigureNodes(ctx, allMIG); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.SwapGPUs(ctx, partitioned); err != nil {
		t.Fatal(err)
	}
	w.waitDevices(ctx, t, 3, func(d *sharing.Device) bool { return d.Mode == sharing.MIG && d.Healthy })
	part(t, "many_pods", func(t *testing.T) { testManyPartitions(t, w) })
	part(t, "made_by_hand", func(t *testing.T) { testMadeByHand(t, w) })
	part(t, "reboot", func(t *testing.T) { testReboot(t, w) })
	part(t, "edited_geometry", func(t *testing.T) { testEditedGeometry(t, w) })
	part(t, "placed_under_an_old_geometry", func(t *testing.T) { testOldGeometry(t, w) })
	part(t, "mig_manager", func(t *testing.T) { testMIGManager(t, w) })
	part(t, "examples_of_the_page", func(t *testing.T) { testMIGPage(t, w) })
}

// waitDevices waits until the node publishes so many devices and each satisfies
// the condition.
func (w *world) waitDevices(ctx context.Context, t *testing.T, n int, want func(*sharing.Device) bool) sharing.Inventory {
	t.Helper()
	for {
		inv := w.inventory(ctx, t)
		met := 0
		for i := range inv.Devices {
			if want(&inv.Devices[i]) {
				met++
			}
		}
		if met == n && len(inv.Devices) == n {
			return inv
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%d of %d devices are as they should be, want %d: %v\n%+v", met, len(inv.Devices), n, ctx.Err(), inv.Devices)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// ask is a pod of one container with memory, that reports and stays.
func ask(name string, mib int64) *workload.Pod {
	return orderly(name).App("main", workload.Ask{Number: 1, Memory: mib}, "info", "env", "forever")
}

// orderly begins a pod that is gone only when its containers are, as pods are by
// default. Without a grace period the API server forgets a pod at once, and its
// containers run on for seconds. It names its user, so that others may share a device
// in mode mps with it.
func orderly(name string) *workload.Pod {
	return pod(name).AsUser(1000).Edit(func(p *corev1.Pod) {
		grace := int64(2)
		p.Spec.TerminationGracePeriodSeconds = &grace
	})
}

// started creates a pod and waits until its containers have reported.
func started(ctx context.Context, t *testing.T, u *user.User, p *workload.Pod) *corev1.Pod {
	t.Helper()
	made := p.Build()
	if err := u.Create(ctx, made); err != nil {
		t.Fatal(err)
	}
	return begun(ctx, t, u, made.Name)
}

// begun waits until the containers of a pod have reported.
func begun(ctx context.Context, t *testing.T, u *user.User, name string) *corev1.Pod {
	t.Helper()
	got, err := u.WaitRunning(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := reported(ctx, u, got); err != nil {
		t.Fatal(err)
	}
	return got
}

// reported waits until every container with shares has printed what it sees.
func reported(ctx context.Context, u *user.User, p *corev1.Pod) error {
	placement, err := user.Placement(p)
	if err != nil {
		return err
	}
	for _, c := range placement.Containers {
		if _, err := u.WaitLog(ctx, p.Name, c.Container, "env limits"); err != nil {
			return err
		}
	}
	return nil
}

// located compares what a pod's containers saw with its annotation, and the
// partitions with where the hardware has them. It returns their UUIDs.
func (w *world) located(ctx context.Context, u *user.User, p *corev1.Pod) ([]string, error) {
	if _, err := compare(ctx, u, p); err != nil {
		return nil, err
	}
	placement, err := user.Placement(p)
	if err != nil {
		return nil, err
	}
	show, err := w.cluster.FakeGPU(ctx, "show")
	if err != nil {
		return nil, err
	}
	there := report.Instances(show)
	var uuids []string
	for _, c := range placement.Containers {
		log, err := u.Log(ctx, p.Name, c.Container)
		if err != nil {
			return nil, err
		}
		uuid, s := lastUUID(log), c.Shares[0]
		i := slices.IndexFunc(there, func(x report.Instance) bool { return x.UUID == uuid })
		if i < 0 {
			return nil, fmt.Errorf("container %s/%s sees %s, which does not exist\n%s", p.Name, c.Container, uuid, show)
		}
		got := there[i]
		if got.Device != string(s.Device) || got.Profile != s.Partition.Profile || got.Start != s.Partition.Start || got.Size != s.Partition.Size {
			return nil, fmt.Errorf("container %s/%s runs on %+v, was given %+v", p.Name, c.Container, got, s)
		}
		uuids = append(uuids, uuid)
	}
	return uuids, nil
}

// lastUUID is the device that a container saw in its newest life.
func lastUUID(log string) string {
	at := strings.LastIndex(log, "info index=0 ")
	if at < 0 {
		return ""
	}
	return report.Field(log[at:], "info index=", "uuid")
}

// partitionOf is the partition of a pod with one container.
func partitionOf(t *testing.T, p *corev1.Pod) sharing.Share {
	t.Helper()
	placement, err := user.Placement(p)
	if err != nil {
		t.Fatal(err)
	}
	return placement.Containers[0].Shares[0]
}
