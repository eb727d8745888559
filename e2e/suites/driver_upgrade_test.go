// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// Labels by which NVIDIA's GPU operator works, as its documentation names them.
const (
	clientLabel  = "nvidia.com/gpu.deploy.client"
	upgradeLabel = "nvidia.com/gpu-driver-upgrade-state"
)

// mixed is a machine with a device for each mode that keeps something of the driver.
const mixed = `fakegpu 1
driver 580.95.05 cuda 13.0
gpu model="NVIDIA A100-SXM4-80GB" memory=81920MiB cc=8.0 numa=0 mig=enabled pci=0000:07:00.0 sms=108
gpu model="NVIDIA H100 80GB HBM3" memory=81559MiB cc=9.0 numa=0 mig=capable pci=0000:0f:00.0 sms=132
gpu model="Tesla T4" memory=15360MiB cc=7.5 numa=1 pci=0000:47:00.0 sms=40
`

// mixedModes gives each device of mixed its mode.
const mixedModes = `{"nodeconfig":[{"name":"` + sandbox.NodeName + `","devices":[{"index":0,"mode":"mig"},{"index":1,"mode":"mps"},{"index":2,"mode":"hami-core"}]}]}`

// testDriverUpgrade replaces the driver of the node as the GPU operator does, again and again,
// under pods of three modes. The test plays the operator and its driver manager.
func testDriverUpgrade(t *testing.T, w *world) {
	upgrades, err := strconv.Atoi(cmp.Or(os.Getenv("DEVICESHARE_UPGRADES"), "3"))
	if err != nil || upgrades < 1 {
		t.Fatalf("DEVICESHARE_UPGRADES=%s is no number of upgrades", os.Getenv("DEVICESHARE_UPGRADES"))
	}
	ctx, u := w.user(t, "driver-upgrade", time.Duration(3+upgrades)*time.Minute)
	o := &operator{world: w, u: u, version: "580.95.05"}
	o.label(ctx, t, clientLabel, "true")
	t.Cleanup(func() { o.label(context.Background(), t, clientLabel, nil) })
	if out, err := w.cluster.Upgrade(ctx, "--set", "gpuOperator.enabled=true", "--wait=legacy"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		if out, err := w.cluster.Upgrade(context.Background(), "--wait=legacy"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		o.leaveAsInstalled(t)
	})
	if err := u.ConfigureNodes(ctx, mixedModes); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.SwapGPUs(ctx, mixed); err != nil {
		t.Fatal(err)
	}
	w.waitDevices(ctx, t, 3, func(d *sharing.Device) bool { return d.Healthy && d.Mode != sharing.TimeSlicing })
	o.prepareVersion(ctx, t, "590.44.01")
	t.Cleanup(func() { o.mountVersion(context.Background(), t, "580.95.05") })
	part(t, "by_the_operator", func(t *testing.T) { o.byTheOperator(ctx, t, upgrades) })
	if err := u.DeleteAll(ctx); err != nil {
		t.Fatal(err)
	}
	part(t, "by_hand", func(t *testing.T) { o.byHand(ctx, t) })
	if err := u.ConfigureNodes(ctx, `{"nodeconfig":[]}`); err != nil {
		t.Fatal(err)
	}
	if err := w.cluster.SwapGPUs(ctx, topology()); err != nil {
		t.Fatal(err)
	}
	w.waitDevices(ctx, t, gpus, func(d *sharing.Device) bool { return d.Mode == sharing.HAMiCore && d.Healthy })
}

// leaveAsInstalled does what Helm's last upgrade did not. It takes the operator's label out of the
// device plugin's node selector, which as a whole belongs to whoever has stopped the plugin. And it
// replaces the keeper, which updates leave alone: Helm would wait for it at the next one.
func (o *operator) leaveAsInstalled(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), slack*time.Minute)
	defer cancel()
	patch := `{"spec":{"template":{"spec":{"nodeSelector":{"` + clientLabel + `":null}}}}}`
	if _, err := o.cluster.Client().AppsV1().DaemonSets(sandbox.Namespace).Patch(ctx, "deviceshare-"+sandbox.DevicePlugin, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	o.replaceKeeper(ctx, t)
	if err := o.cluster.WaitReady(ctx, sandbox.DevicePlugin); err != nil {
		t.Error(err)
	}
}

// operator plays NVIDIA's GPU operator and its driver manager.
type operator struct {
	*world
	u       *user.User
	version string // of the driver that is mounted
}

// replicas are the modes of which a controller keeps a pod there, and how many MiB each asks for.
func replicas() map[sharing.Mode]int64 {
	return map[sharing.Mode]int64{sharing.HAMiCore: 1000, sharing.MPS: 1000, sharing.MIG: 9000}
}

// byTheOperator is so many upgrades under pods of all modes.
func (o *operator) byTheOperator(ctx context.Context, t *testing.T, upgrades int) {
	for mode, memory := range replicas() {
		p := orderly(string(mode)).App("main", workload.Ask{Number: 1, Memory: memory}, "info", "alloc", "100", "expect", "ok", "forever")
		o.replicate(ctx, t, o.u, p.Annotate(wire.UserMode, string(mode)).Build())
	}
	o.awaitReplicas(ctx, t)
	o.heldUp(ctx, t)
	for range upgrades - 1 {
		o.begin(ctx, t)
		o.replaceDriver(ctx, t)
		o.finish(ctx, t)
	}
}

// label writes a label of the node; nil removes it.
func (o *operator) label(ctx context.Context, t *testing.T, key string, value any) {
	t.Helper()
	o.patchNode(ctx, t, map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}})
}

// cordon closes the node to new pods, or opens it.
func (o *operator) cordon(ctx context.Context, t *testing.T, closed bool) {
	t.Helper()
	o.patchNode(ctx, t, map[string]any{"spec": map[string]any{"unschedulable": closed}})
}

func (o *operator) patchNode(ctx context.Context, t *testing.T, patch map[string]any) {
	t.Helper()
	text, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := o.cluster.Client().CoreV1().Nodes().Patch(ctx, sandbox.NodeName, types.MergePatchType, text, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// awaitReplicas waits until each controller's pod runs, with the driver that is there now, and
// wants that no pod has failed.
func (o *operator) awaitReplicas(ctx context.Context, t *testing.T) {
	t.Helper()
	askUntil(ctx, t, "a pod of each mode to run with driver "+o.version, func() (bool, error) {
		pods, err := o.u.Pods(ctx)
		running := map[string]bool{}
		for i := range pods {
			if pods[i].Status.Phase == corev1.PodFailed {
				t.Fatalf("pod %s has failed: %s %s", pods[i].Name, pods[i].Status.Reason, pods[i].Status.Message)
			}
			if pods[i].DeletionTimestamp == nil && pods[i].Status.Phase == corev1.PodRunning {
				running[pods[i].Labels["app"]] = true
			}
		}
		return len(running) >= len(replicas()) && len(o.users(ctx, t)) >= len(replicas()), err
	})
}

// begin brings the operator to where it waits for the node to be empty.
func (o *operator) begin(ctx context.Context, t *testing.T) {
	t.Helper()
	o.label(ctx, t, upgradeLabel, "upgrade-required")
	o.label(ctx, t, upgradeLabel, "cordon-required")
	o.cordon(ctx, t, true)
	for _, state := range []string{"wait-for-jobs-required", "pod-deletion-required", "pod-restart-required"} {
		o.label(ctx, t, upgradeLabel, state) // it finds no pods of its own
	}
	o.label(ctx, t, clientLabel, "paused-for-driver-upgrade")
}

// heldUp is an upgrade that a budget and a bare pod hold up, as the node says, until they do not.
func (o *operator) heldUp(ctx context.Context, t *testing.T) {
	t.Helper()
	o.protect(ctx, t, o.u, "needed", 1, "app", "mps")
	if err := o.u.Create(ctx, orderly("bare").App("main", workload.Ask{Number: 1, Memory: 1000}, "forever").Annotate(wire.UserMode, "hami-core").Build()); err != nil {
		t.Fatal(err)
	}
	if _, err := o.u.WaitRunning(ctx, "bare"); err != nil {
		t.Fatal(err)
	}
	o.begin(ctx, t)
	ns := o.u.Namespace()
	if err := o.waitEvent(ctx, "cannot be replaced before these pods have left", ns+"/bare (no controller would make it again: delete it yourself)", ns+"/mps-", "needed needs 1 healthy pods and has 1 currently"); err != nil {
		t.Errorf("the node does not say what holds the upgrade up: %v", err)
	}
	if users := o.users(ctx, t); len(users) < 2 {
		t.Errorf("only %d processes use the driver though two pods stay", len(users))
	}
	if err := o.u.Delete(ctx, "bare"); err != nil {
		t.Fatal(err)
	}
	if err := o.cluster.Client().PolicyV1().PodDisruptionBudgets(ns).Delete(ctx, "needed", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	o.replaceDriver(ctx, t)
	o.finish(ctx, t)
	if err := o.waitEvent(ctx, "NVIDIA's GPU operator replaces the driver of node "+sandbox.NodeName+", of which this pod holds devices"); err != nil {
		t.Errorf("nobody told the pods that were evicted: %v", err)
	}
}

// users are the processes that have the driver that is mounted now in their memory.
func (o *operator) users(ctx context.Context, t *testing.T) []string {
	t.Helper()
	const files = "usr/lib/x86_64-linux-gnu/libcuda.so.1 usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1 usr/bin/nvidia-cuda-mps-control"
	return strings.Fields(o.runOnNode(ctx, t, `cd /run/nvidia/driver && inodes=$(stat -L -c %%i %s | paste -sd'|') && grep -lsE " ($inodes) +/" /proc/[0-9]*/maps || true`, files))
}

// replaceDriver is what the driver manager does: it waits for the pods of DaemonSets that carry its
// label, and unloads the driver when nobody uses it.
func (o *operator) replaceDriver(ctx context.Context, t *testing.T) {
	t.Helper()
	// It waits for five minutes.
	waiting, cancel := context.WithTimeout(ctx, slack*5*time.Minute)
	defer cancel()
	askUntil(waiting, t, "device plugin and keeper to leave the node", func() (bool, error) {
		pods, err := o.cluster.Client().CoreV1().Pods("").List(waiting, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		return !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool { _, waitedFor := p.Spec.NodeSelector[clientLabel]; return waitedFor }), nil
	})
	askUntil(waiting, t, "nobody to use the driver", func() (bool, error) {
		users := o.users(waiting, t)
		return len(users) == 0, fmt.Errorf("in use by %q", users)
	})
	o.mountVersion(ctx, t, o.other())
}

// finish brings the operator to its end, after which pods of all modes run.
func (o *operator) finish(ctx context.Context, t *testing.T) {
	t.Helper()
	o.label(ctx, t, clientLabel, "true")
	o.label(ctx, t, upgradeLabel, "validation-required")
	if err := o.cluster.WaitReady(ctx, sandbox.Keeper); err != nil {
		t.Fatal(err)
	}
	o.waitDevices(ctx, t, 3, func(d *sharing.Device) bool { return !d.Healthy && strings.Contains(d.Reason, "replaces the driver") })
	o.label(ctx, t, upgradeLabel, "uncordon-required")
	o.cordon(ctx, t, false)
	o.label(ctx, t, upgradeLabel, "upgrade-done")
	if err := o.cluster.WaitReady(ctx, sandbox.DevicePlugin); err != nil {
		t.Fatal(err)
	}
	o.awaitReplicas(ctx, t)
}

// byHand is an upgrade of a driver that the machine's packages bring.
func (o *operator) byHand(ctx context.Context, t *testing.T) {
	t.Helper()
	if said := o.deviceshare(ctx, t, "release", sandbox.NodeName, "--for", "20m"); !strings.Contains(said, "does not use the driver. No pod with devices runs there.") {
		t.Errorf("the command says %q", said)
	}
	for _, d := range o.inventory(ctx, t).Devices {
		if d.Healthy || d.Reason != wire.ReasonReleased {
			t.Errorf("a device of a released driver is published as %+v", d)
		}
	}
	o.mountVersion(ctx, t, o.other())
	o.deviceshare(ctx, t, "release", sandbox.NodeName, "--end")
	o.waitDevices(ctx, t, 3, func(d *sharing.Device) bool { return d.Healthy })
	if !runs(ctx, t, o.u, "after") {
		t.Error("no pod runs with the driver that was replaced by hand")
	}
}

// other is the version that is not mounted.
func (o *operator) other() string {
	return map[string]string{"580.95.05": "590.44.01", "590.44.01": "580.95.05"}[o.version]
}

// rootOf is where the files of a version are.
func rootOf(version string) string { return "/run/driver-" + version }

// prepareVersion makes the files of another version of the driver, and keeps those of this one.
// Both are private mounts: what is unmounted where the driver is stays mounted here. A driver's
// container shares the machine's /run/nvidia, where file systems of MPS daemons come and go.
func (o *operator) prepareVersion(ctx context.Context, t *testing.T, version string) {
	t.Helper()
	o.runOnNode(ctx, t, `set -e
mkdir -p %[1]s %[2]s && mount --rbind /run/nvidia/driver %[1]s && mount --make-rprivate %[1]s
(cd /run/nvidia/driver && tar cf - --one-file-system --exclude=./dev --exclude=./run .) | tar xf - -C %[2]s
mount --bind %[2]s %[2]s && mount --make-private %[2]s
cd %[2]s/usr/lib/x86_64-linux-gnu
for name in libcuda libnvidia-ml; do mv $name.so.%[3]s $name.so.%[4]s; ln -sf $name.so.%[4]s $name.so.1; done
for place in dev run/fakegpu; do mkdir -p %[2]s/$place; mount --rbind /run/nvidia/driver/$place %[2]s/$place; mount --make-rprivate %[2]s/$place; done
umount --recursive --lazy %[1]s/run/nvidia/mps; mkdir -p %[2]s/run/nvidia/mps
for root in %[1]s %[2]s; do mount --bind /run/nvidia/mps $root/run/nvidia/mps; done`,
		rootOf(o.version), rootOf(version), o.version, version)
}

// mountVersion unloads the driver and loads another one: its files are mounted where the driver's
// container mounts them, and devices have lost their partitions.
func (o *operator) mountVersion(ctx context.Context, t *testing.T, version string) {
	t.Helper()
	if version == o.version {
		return
	}
	if out, err := o.cluster.FakeGPU(ctx, "reboot"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	o.runOnNode(ctx, t, `sed -i 's/^driver .* cuda/driver %[2]s cuda/' /run/nvidia/driver/run/fakegpu/topology &&
umount --recursive --lazy /run/nvidia/driver && mount --rbind %[1]s /run/nvidia/driver`, rootOf(version), version)
	o.version = version
}
