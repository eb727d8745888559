// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/otherplugin"
	"deviceshare/e2e/report"
	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/sandbox/fakenode"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/events"
)

// Devices of the real node that are not ours: one that an administrator has partitioned, and two
// that NVIDIA's device plugin gives out.
const (
	partitionedIndex = 5
	firstWholeIndex  = 6
	oursOfNode       = 5 // how many are left
)

// theirsOnly is the taint of a node whose devices are all NVIDIA's plugin's.
const theirsOnly = "example.com/nvidia-only"

// Beside NVIDIA's device plugin: devices that filterdevices names are left alone whatever becomes
// of the others, pods that ask for nvidia.com/gpu get them here and on another node, and a pod may
// ask for both kinds. otherplugin plays NVIDIA's device plugin and container runtime.
func testBesideNVIDIA(t *testing.T, w *world) {
	ctx, u := w.user(t, "beside-nvidia", 4*time.Minute)
	all := w.devices(ctx, t)
	filter := fmt.Sprintf(`"filterdevices":{"uuid":[%q],"index":[%d,%d]}`, all[partitionedIndex].UUID, firstWholeIndex, firstWholeIndex+1)
	w.mode(ctx, t, u, filter)
	w.waitDevices(ctx, t, oursOfNode, isIn(sharing.HAMiCore))
	w.prepareOthers(ctx, t)
	before := w.left(ctx, t)

	nvidia, err := otherplugin.StartNVIDIA(ctx, w.cluster.KubeletDir(sandbox.NodeName), otherplugin.Runtime{
		Libraries: "/run/nvidia/driver/usr/lib/x86_64-linux-gnu", Dev: "/dev"}, all[firstWholeIndex:]...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nvidia.Stop)
	w.forgottenFilter(ctx, t, u, filter, all[firstWholeIndex])
	w.besideDRA(ctx, t, all[0])
	w.nvidiaNode(ctx, t)
	w.wholeDevices(ctx, t, u, all[firstWholeIndex:])
	w.sharesBesideThem(ctx, t, u, all[firstWholeIndex:])

	// What changes the devices of the node does not reach the others.
	if err := u.Delete(ctx, "shares", "both"); err != nil {
		t.Fatal(err)
	}
	w.mode(ctx, t, u, `"operatingmode":"mps",`+filter)
	w.waitDevices(ctx, t, oursOfNode, isIn(sharing.MPS))
	w.mode(ctx, t, u, filter)
	w.waitDevices(ctx, t, oursOfNode, isIn(sharing.HAMiCore))
	w.kill(ctx, t, sandbox.DevicePlugin)
	if err := w.cluster.WaitReady(ctx, sandbox.DevicePlugin); err != nil {
		t.Fatal(err)
	}
	w.waitDevices(ctx, t, oursOfNode, isIn(sharing.HAMiCore))
	if after := w.left(ctx, t); after != before {
		t.Errorf("devices that are not ours were\n%s\nand are\n%s", before, after)
	}
	stays, err := u.Get(ctx, "whole-volcano")
	if err != nil || stays.Status.Phase != corev1.PodRunning || restarts(stays) != 0 {
		t.Errorf("the pod with a whole device did not run through: %v, %+v", err, stays.Status)
	}
}

// forgottenFilter has our node configuration forget one of the devices that NVIDIA's device plugin
// offers: it is told, and takes no pods, until the configuration is right again.
func (w *world) forgottenFilter(ctx context.Context, t *testing.T, u *user.User, filter string, both otherplugin.Device) {
	t.Helper()
	w.mode(ctx, t, u, strings.Replace(filter, fmt.Sprintf("[%d,", firstWholeIndex), "[", 1))
	if err := w.nodeSaid(ctx, events.GPUOfferedTwice, "device "+both.UUID+" (index 6): another device plugin of this node offers it, too, as nvidia.com/gpu"); err != nil {
		t.Fatal(err)
	}
	w.waitDevices(ctx, t, oursOfNode+1, func(d *sharing.Device) bool { return d.Healthy == (d.ID != sharing.DeviceID(both.UUID)) })
	wants := pod("wants-both").App("main", oneDevice(), "info").Annotate("volcano.sh/vgpu-use-gpuuuid", both.UUID).Build()
	if err := u.Create(ctx, wants); err != nil {
		t.Fatal(err)
	}
	w.told(ctx, t, u.Namespace(), "wants-both", "1 out of service (Unhealthy)")
	if err := u.Delete(ctx, "wants-both"); err != nil {
		t.Fatal(err)
	}
	w.mode(ctx, t, u, filter)
	w.waitDevices(ctx, t, oursOfNode, isIn(sharing.HAMiCore))
	if err := w.nodeSaid(ctx, events.GPUOfferedTwice+events.Resolved, both.UUID); err != nil {
		t.Fatal(err)
	}
}

// besideDRA has a DRA driver offer one of our devices: it takes no pods until the driver has left.
func (w *world) besideDRA(ctx context.Context, t *testing.T, both otherplugin.Device) {
	t.Helper()
	name, uuid := sandbox.NodeName, both.UUID
	slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "beside-nvidia"}, Spec: resourcev1.ResourceSliceSpec{
		Driver: "gpu.nvidia.com", NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{Name: "gpu-0", Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"uuid": {StringValue: &uuid}}}},
	}}
	of := w.cluster.Client().ResourceV1().ResourceSlices()
	if _, err := of.Create(ctx, slice, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = of.Delete(context.Background(), slice.Name, metav1.DeleteOptions{}) })
	if err := w.nodeSaid(ctx, events.GPUOfferedTwice, "device "+uuid+" (index 0): DRA driver gpu.nvidia.com offers it, too, in a ResourceSlice"); err != nil {
		t.Fatal(err)
	}
	w.waitDevices(ctx, t, oursOfNode, func(d *sharing.Device) bool { return d.Healthy == (d.ID != sharing.DeviceID(uuid)) })
	if err := of.Delete(ctx, slice.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitDevices(ctx, t, oursOfNode, isIn(sharing.HAMiCore))
	if err := w.nodeSaid(ctx, events.GPUOfferedTwice+events.Resolved, uuid); err != nil {
		t.Fatal(err)
	}
}

// isIn wants a device that takes pods in a mode.
func isIn(m sharing.Mode) func(*sharing.Device) bool {
	return func(d *sharing.Device) bool { return d.Mode == m && d.Healthy }
}

// devices are the real node's, as the fake driver lists them.
func (w *world) devices(ctx context.Context, t *testing.T) (out []otherplugin.Device) {
	t.Helper()
	show, err := w.cluster.FakeGPU(ctx, "show")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(show) {
		if strings.HasPrefix(line, "device ") {
			out = append(out, otherplugin.Device{UUID: report.Value(line, "uuid"), MemoryMiB: number(line, "total_mib"), Index: len(out)})
		}
	}
	return out
}

// computeMode is the file in which the fake driver keeps what `nvidia-smi -c` sets.
func (w *world) computeMode(index int) string {
	return filepath.Join(w.cluster.Dir(), "gpu", fmt.Sprintf("compute-mode-%d", index))
}

// prepareOthers does with devices that are not ours what their administrator does: one gets a MIG
// geometry, another takes one process at a time. At the end all is as it was.
func (w *world) prepareOthers(ctx context.Context, t *testing.T) {
	t.Helper()
	index := fmt.Sprint(partitionedIndex)
	do := func(ctx context.Context, commands ...string) {
		for _, c := range commands {
			if out, err := w.cluster.FakeGPU(ctx, strings.Fields(c)...); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}
	}
	exclusive := w.computeMode(firstWholeIndex)
	do(ctx, "mig "+index+" on", "reset "+index, "create "+index+" 3g.40gb 4", "create "+index+" 1g.10gb 0")
	if err := os.WriteFile(exclusive, []byte("3\n"), 0o644); err != nil { // EXCLUSIVE_PROCESS
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
		defer cancel()
		do(ctx, "mig "+index+" off", "reset "+index)
		if err := os.Remove(exclusive); err != nil {
			t.Error(err)
		}
		u, err := user.New(ctx, w.cluster.Client(), "beside-nvidia-after")
		if err != nil {
			t.Fatal(err)
		}
		w.mode(ctx, t, u, `"operatingmode":"hami-core"`)
		w.waitDevices(ctx, t, gpus, isIn(sharing.HAMiCore))
	})
}

// left is what the driver says of the devices that are not ours: MIG mode, instances and compute
// mode.
func (w *world) left(ctx context.Context, t *testing.T) string {
	t.Helper()
	show, err := w.cluster.FakeGPU(ctx, "show")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	index := -1
	for line := range strings.Lines(show) {
		switch f := strings.Fields(line); {
		case len(f) > 0 && f[0] == "device":
			if index++; index >= partitionedIndex {
				compute, _ := os.ReadFile(w.computeMode(index)) // none is the default
				out = append(out, fmt.Sprintf("%d: mig=%s, compute mode %q", index, report.Value(line, "mig"), compute))
			}
		case len(f) > 0 && f[0] == "instance" && index >= partitionedIndex:
			out = append(out, strings.Join(f[:6], " "))
		}
	}
	if len(out) != gpus-partitionedIndex+2 {
		t.Fatalf("the fake driver shows other devices than wanted: %q", out)
	}
	return strings.Join(out, "\n")
}

// nvidiaNode is a node with NVIDIA's devices only; it is simulated, and has a taint that keeps our
// DaemonSet and pods off it that do not ask for such a device.
func (w *world) nvidiaNode(ctx context.Context, t *testing.T) {
	t.Helper()
	amounts := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("32Gi"),
		corev1.ResourcePods: resource.MustParse("20"), otherplugin.NVIDIAResource: resource.MustParse("2")}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "nvidia-only"}, Status: corev1.NodeStatus{Capacity: amounts},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: theirsOnly, Effect: corev1.TaintEffectNoSchedule}}}}
	keeper, err := fakenode.Create(ctx, w.cluster.Client(), []*corev1.Node{node})
	if err != nil {
		t.Fatal(err)
	}
	run, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); keeper.Run(run) }()
	t.Cleanup(func() {
		stop()
		<-done
		if err := w.cluster.Client().CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

// whole is a pod that asks for whole devices of NVIDIA's plugin.
func whole(name, scheduler string, devices int64) *workload.Pod {
	return pod(name).App("main", workload.Ask{}, "info", "env", "forever").Edit(func(p *corev1.Pod) {
		p.Spec.SchedulerName = scheduler
		p.Spec.Tolerations = []corev1.Toleration{{Key: theirsOnly, Operator: corev1.TolerationOpExists}}
		p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{otherplugin.NVIDIAResource: *resource.NewQuantity(devices, resource.DecimalSI)}
	})
}

// wholeDevices has pods of both schedulers take the devices of NVIDIA's plugin, on both nodes.
func (w *world) wholeDevices(ctx context.Context, t *testing.T, u *user.User, theirs []otherplugin.Device) {
	t.Helper()
	var taken []string
	for _, scheduler := range []string{"volcano", "default-scheduler"} {
		name := "whole-" + strings.TrimSuffix(scheduler, "-scheduler")
		p := whole(name, scheduler, 1).Edit(func(p *corev1.Pod) {
			p.Spec.NodeSelector = map[string]string{corev1.LabelHostname: sandbox.NodeName}
		})
		if err := u.Create(ctx, p.Build()); err != nil {
			t.Fatal(err)
		}
		log, err := u.WaitLog(ctx, name, "main", envEnd)
		if err != nil {
			t.Fatal(err)
		}
		s := parse(log)
		if len(s.devices) != 1 || s.mapped || s.devices[0].total != theirs[0].MemoryMiB<<20 {
			t.Fatalf("pod %s saw %+v, want one whole device", name, s)
		}
		taken = append(taken, s.devices[0].uuid)
	}
	slices.Sort(taken)
	want := []string{theirs[0].UUID, theirs[1].UUID}
	if slices.Sort(want); !slices.Equal(taken, want) {
		t.Errorf("pods of nvidia.com/gpu have %v, want %v", taken, want)
	}
	if err := u.Create(ctx, whole("whole-elsewhere", "volcano", 2).Build()); err != nil {
		t.Fatal(err)
	}
	elsewhere, err := u.WaitRunning(ctx, "whole-elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	if elsewhere.Spec.NodeName == sandbox.NodeName {
		t.Error("two more whole devices were given on a node that has none free")
	}
}

// sharesBesideThem has pods ask for all of our devices, for more than those, and for both kinds.
func (w *world) sharesBesideThem(ctx context.Context, t *testing.T, u *user.User, theirs []otherplugin.Device) {
	t.Helper()
	isTheirs := func(d seenDevice) bool {
		return slices.ContainsFunc(theirs, func(o otherplugin.Device) bool { return o.UUID == d.uuid })
	}
	p := started(ctx, t, u, pod("shares").App("main", workload.Ask{Number: oursOfNode, Memory: 1000}, "info", "env", "forever"))
	log, err := u.WaitLog(ctx, p.Name, "main", envEnd)
	if err != nil {
		t.Fatal(err)
	}
	if s := parse(log); len(s.devices) != oursOfNode || slices.ContainsFunc(s.devices, isTheirs) {
		t.Errorf("a pod of all our devices saw %+v", s.devices)
	}
	if err := u.Create(ctx, pod("more").App("main", workload.Ask{Number: oursOfNode + 1, Memory: 1}, "info").Build()); err != nil {
		t.Fatal(err)
	}
	if _, err := u.WaitEvent(ctx, "more", "device"); err != nil {
		t.Error(err)
	}
	if p, err := u.Get(ctx, "more"); err != nil || p.Spec.NodeName != "" {
		t.Errorf("a pod of %d devices was placed where %d are ours: %v", oursOfNode+1, oursOfNode, err)
	}
	if err := u.Delete(ctx, "whole-default", "more"); err != nil {
		t.Fatal(err)
	}
	both := whole("both", "volcano", 1).App("share", workload.Ask{Number: 1, Memory: 700, Cores: 10}, "info", "env", "forever")
	p = started(ctx, t, u, both)
	for container, wantTheirs := range map[string]bool{"main": true, "share": false} {
		log, err := u.WaitLog(ctx, p.Name, container, envEnd)
		if err != nil {
			t.Fatal(err)
		}
		if s := parse(log); len(s.devices) != 1 || isTheirs(s.devices[0]) != wantTheirs || s.mapped == wantTheirs {
			t.Errorf("container %s of a pod of both kinds saw %+v", container, s)
		}
	}
	if _, err := compare(ctx, u, p); err != nil {
		t.Error(err)
	}
}
