// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/events"
	"deviceshare/sharing/wire"
)

// virtualMachine has two vGPUs, of which the first has no licence.
const virtualMachine = `fakegpu 1
driver 580.95.05 cuda 13.0
gpu model="NVIDIA A100-4-20C" memory=20480MiB cc=8.0 numa=0 virtual=vgpu licence=none pci=0000:07:00.0 sms=108
gpu model="NVIDIA A100-4-20C" memory=20480MiB cc=8.0 numa=0 virtual=vgpu licence=ok pci=0000:0f:00.0 sms=108
`

// testVGPUGuest makes the node a virtual machine with vGPUs.
func testVGPUGuest(t *testing.T, w *world) {
	ctx, u := w.user(t, "vgpu-guest", 4*time.Minute)
	w.mode(ctx, t, u, `"operatingmode":"hami-core"`)
	if err := w.cluster.SwapGPUs(ctx, virtualMachine); err != nil {
		t.Fatal(err)
	}
	inv := w.waitDevices(ctx, t, 2, func(d *sharing.Device) bool {
		return d.Virtual && d.Healthy && d.Licence == []sharing.Licence{sharing.LicenceMissing, sharing.LicenceValid}[d.Index]
	})
	if wide := w.deviceshare(ctx, t, "devices", sandbox.NodeName, "-o", "wide"); !strings.Contains(wide, "vGPU (licence missing)") || !strings.Contains(wide, "vGPU (licence valid)") {
		t.Errorf("devices -o wide says\n%s", wide)
	}
	t.Run("share", func(t *testing.T) { sharesAVirtualDevice(t, w, inv.Devices[0].ID) })
	t.Run("modes", func(t *testing.T) { w.refusesModesOfTheHost(t, inv.Devices[1].ID) })
	t.Run("wish", func(t *testing.T) { choosesVirtualDevicesOrNone(t, w) })
	t.Run("licence", func(t *testing.T) { w.followsALicence(t, inv.Devices[0].ID) })
	if err := errors.Join(u.ConfigureNodes(ctx, `{"nodeconfig":[]}`), w.cluster.SwapGPUs(ctx, topology())); err != nil {
		t.Fatal(err)
	}
	w.waitDevices(ctx, t, gpus, func(d *sharing.Device) bool { return d.Mode == sharing.HAMiCore && d.Healthy && !d.Virtual })
}

// sharesAVirtualDevice runs a container with a part of a vGPU, which it cannot exceed, with a
// licence or without.
func sharesAVirtualDevice(t *testing.T, w *world, id sharing.DeviceID) {
	ctx, u := w.user(t, "vgpu-share", 2*time.Minute)
	limited := pod("limited").App("main", workload.Ask{Number: 1, Memory: 1000}, "alloc", "900", "expect", "ok", "alloc", "200", "expect", "oom")
	if err := u.Create(ctx, limited.Annotate(wire.UserUseIDs, string(id)).Build()); err != nil {
		t.Fatal(err)
	}
	succeeds(ctx, t, u, "limited")
}

// refusesModesOfTheHost wishes for modes that only the host can bring about. The device takes no
// pods in any other mode meanwhile.
func (w *world) refusesModesOfTheHost(t *testing.T, id sharing.DeviceID) {
	ctx, u := w.user(t, "vgpu-modes", 4*time.Minute)
	for _, c := range []struct {
		mode      sharing.Mode
		event, of string
	}{
		{sharing.MIG, events.GPUModeUnusable, "cut it on the host"},
		{sharing.MPS, events.GPUModeNeedsAdministrator, "give it mode hami-core or time-slicing"},
	} {
		w.mode(ctx, t, u, fmt.Sprintf(`"operatingmode":"hami-core","devices":[{"index":1,"mode":%q}]`, c.mode))
		w.waitDevices(ctx, t, 2, func(d *sharing.Device) bool {
			return d.Index == 0 && d.Healthy || d.Mode == c.mode && !d.Healthy && strings.Contains(d.Reason, c.of)
		})
		if err := w.nodeSaid(ctx, c.event, c.of); err != nil {
			t.Error(err)
		}
		name := "plain-" + string(c.mode)
		if err := u.Create(ctx, filling(name).Annotate(wire.UserMode, string(sharing.HAMiCore)).Annotate(wire.UserUseIDs, string(id)).Build()); err != nil {
			t.Fatal(err)
		}
		w.told(ctx, t, u.Namespace(), name, "0/2 devices fit")
		if err := u.Delete(ctx, name); err != nil {
			t.Fatal(err)
		}
	}
	w.mode(ctx, t, u, `"operatingmode":"hami-core"`)
	w.waitDevices(ctx, t, 2, isIn(sharing.HAMiCore))
}

// choosesVirtualDevicesOrNone has pods say whether they take vGPUs.
func choosesVirtualDevicesOrNone(t *testing.T, w *world) {
	ctx, u := w.user(t, "vgpu-wish", 3*time.Minute)
	refused := u.Create(ctx, filling("wrong").Annotate(wire.UserVirtual, "no").Build())
	if refused == nil || !strings.Contains(refused.Error(), `metadata.annotations[volcano.sh/vgpu-virtual]: unknown value "no": want never or only`) {
		t.Errorf("a mistake is answered with %v", refused)
	}
	if err := u.Create(ctx, filling("never").Annotate(wire.UserVirtual, wire.VirtualNever).Build()); err != nil {
		t.Fatal(err)
	}
	w.told(ctx, t, u.Namespace(), "never", "2 excluded by the pod's volcano.sh/vgpu-virtual (VirtualMismatch)")
	running(ctx, t, u, filling("only").Annotate(wire.UserVirtual, wire.VirtualOnly).Build())
	areHeldBack(ctx, t, u, "never")
	if why := w.deviceshare(ctx, t, "why", "never", "-n", u.Namespace()); !strings.Contains(why, "VirtualMismatch") {
		t.Errorf("why says\n%s", why)
	}
}

// followsALicence gives the vGPU its licence.
func (w *world) followsALicence(t *testing.T, id sharing.DeviceID) {
	ctx, _ := w.user(t, "vgpu-licence", 2*time.Minute)
	if err := w.nodeSaid(ctx, events.GPULicenceMissing, fmt.Sprintf("device %s (index 0) is a vGPU, and it has no licence", id)); err != nil {
		t.Fatal(err)
	}
	const trouble = "device 0 is a vGPU without a licence"
	w.untilDoctorSays(ctx, t, trouble)
	w.awaitLicensed(ctx, t, id, 0)
	if _, err := w.cluster.FakeGPU(ctx, "licence", "0", "ok"); err != nil {
		t.Fatal(err)
	}
	if err := w.nodeSaid(ctx, events.GPULicenceMissing+events.Resolved, string(id)); err != nil {
		t.Fatal(err)
	}
	w.waitDevices(ctx, t, 2, func(d *sharing.Device) bool { return d.Licence == sharing.LicenceValid })
	w.awaitLicensed(ctx, t, id, 1)
	if out := w.deviceshare(ctx, t, "status"); strings.Contains(out, trouble) {
		t.Errorf("the status says\n%s", out)
	}
}

// awaitLicensed waits until the device plugin's metric of a vGPU has a value.
func (w *world) awaitLicensed(ctx context.Context, t *testing.T, id sharing.DeviceID, want float64) {
	t.Helper()
	askUntil(ctx, t, fmt.Sprintf("the metric of %s to be %v", id, want), func() (bool, error) {
		for name, value := range w.metricsOf(ctx, t, sandbox.DevicePlugin) {
			if strings.HasPrefix(name, "deviceshare_node_device_licensed{") && strings.Contains(name, string(id)) {
				return value == want, nil
			}
		}
		return false, nil
	})
}
