// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"deviceshare/sharing"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/wire"
)

func TestAPodIsToldInWordsWhyDevicesRefuseItAndWhatHelps(t *testing.T) {
	inMode := func(mode sharing.Mode) sharing.Inventory {
		inv := sharing.Inventory{Node: "n1"}
		for i := range 2 {
			d := sharingtest.Device(i, "A100-40", mode)
			d.NUMA, d.NoRoot = i, mode == sharing.MPS
			inv.Devices = append(inv.Devices, d)
		}
		return inv
	}
	holder := func(device sharing.DeviceID) *corev1.Pod {
		return runningOn(t, podOf("holder-"+string(device), "h", asks{number: 1, memory: 30000}), "n1", share(device, 30000))
	}
	for name, c := range map[string]struct {
		inv     sharing.Inventory
		holders []sharing.DeviceID
		ask     asks
		numa    string
		want    string
	}{
		"others have the memory": {inMode(sharing.HAMiCore), []sharing.DeviceID{"GPU-0", "GPU-1"}, asks{number: 1, memory: 20000}, "",
			"1 wanted: 2 short of free memory (NotEnoughMemory). What helps: ask for less memory, or wait until pods end."},
		"no device has the memory": {inMode(sharing.HAMiCore), nil, asks{number: 1, memory: 50000}, "",
			"2 short of free memory (NotEnoughMemory), and it would not fit the empty node. What helps: ask for less: no pod that ends makes room for it."},
		"the pod may run as root": {inMode(sharing.MPS), nil, asks{number: 1, memory: 1000}, "",
			"2 refusing containers that run as root (RootUser). What helps: set securityContext.runAsUser to a user other than 0."},
		"no partition is as large": {inMode(sharing.MIG), nil, asks{number: 1, memory: 40961}, "",
			"What helps: ask for less: no pod that ends makes room for it; partitions have 4864MiB, 9856MiB, 19968MiB, 40192MiB."},
		"the devices are on two NUMA nodes": {inMode(sharing.HAMiCore), nil, asks{number: 2, memory: 1000}, wire.NUMASingle,
			"1 on another NUMA node (OtherNUMANode). What helps: ask for fewer devices, or remove volcano.sh/vgpu-numa."},
	} {
		t.Run(name, func(t *testing.T) {
			pod := podOf("p", "g", c.ask)
			if c.numa != "" {
				pod.Annotations[wire.UserNUMA] = c.numa
			}
			node := nodeOf(t, c.inv)
			delete(node.Status.Allocatable, wire.ResourceMemory) // or Volcano compares sums
			w := newWorld(t, node, groupOf("h", 1), groupOf("g", 1), pod)
			for _, device := range c.holders {
				w.create(holder(device))
			}
			w.explained()
			if got := w.status.message("p"); !strings.HasSuffix(got, c.want) {
				t.Errorf("got %q, want it to end with %q", got, c.want)
			}
		})
	}
}

func TestAmountsOfDevicesHaveUnitsInWhatAPodIsTold(t *testing.T) {
	group := heldGroup("g", 1, 1)
	(*group.Spec.MinResources)[wire.ResourceMemory] = resource.MustParse("20000")
	(*group.Spec.MinResources)[wire.ResourceCores] = resource.MustParse("300")
	node := small(t, "n1", 1)
	node.Status.Allocatable[wire.ResourceMemory], node.Status.Allocatable[wire.ResourceCores] = resource.MustParse("10000"), resource.MustParse("100")
	w := newWorld(t, node, group, podOf("p", "g", asks{number: 1, memory: 20000}))
	w.with("overcommit")
	w.explained()
	got := w.status.message("p")
	for _, want := range []string{"asks for 20000MiB of " + wire.ResourceMemory + ", 0 of 12000MiB are", "asks for 300 percent of " + wire.ResourceCores + ", 0 percent of 120 percent are"} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want it to say %q", got, want)
		}
	}
}
