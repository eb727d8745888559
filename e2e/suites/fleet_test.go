// SPDX-License-Identifier: Apache-2.0

package suites

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/e2e/otherplugin"
	"deviceshare/e2e/sandbox"
	"deviceshare/e2e/user"
	"deviceshare/e2e/workload"
)

// What the fleet's ConfigMap says, and what each of its GPUs has.
const (
	fleetFactor = 10 // MiB per unit of memory
	fleetSplit  = 10 // containers per device
	fleetMiB    = 40960
)

// fleet is a cluster of four nodes with GPUs that begins with Volcano's scheduler and Volcano's
// existing device plugin, which otherplugin plays. One node is real. The kubelets, device plugins
// and GPUs of the three hollow ones are as well; their containers are not.
type fleet struct {
	*world
	nodes []*fleetNode
	user  *user.User
	seen  *books
	hook  os.FileInfo // the library of Volcano's device plugin on the real node
	// survivors are the pods that have to run from their creation to the end.
	survivors []string
}

// fleetNode is one node, with its device plugin of Volcano's while that one runs.
type fleetNode struct {
	name    string
	devices []otherplugin.Device
	legacy  *otherplugin.VGPU
}

func (n *fleetNode) isHollow() bool { return n.name != sandbox.NodeName }

// TestFleet moves a fleet from Volcano's scheduler and its existing device plugin to this
// project's, and back. docs/migrate.md is this test in words.
func TestFleet(t *testing.T) {
	if os.Getenv("DEVICESHARE_FLEET") == "" {
		t.Skip("takes five minutes: run `make fleet` as root")
	}
	f := startFleet(t)
	ctx, cancel := context.WithTimeout(context.Background(), slack*10*time.Minute)
	defer cancel()
	for _, s := range []struct {
		name string
		run  func(context.Context, *testing.T)
	}{
		{"volcano_alone", f.volcanoAlone},
		{"our_plugin_under_volcanos_scheduler", f.ourPluginUnderVolcanosScheduler},
		{"our_scheduler_over_volcanos_plugin", f.ourSchedulerOverVolcanosPlugin},
		{"nodes_one_by_one", f.nodesOneByOne},
		{"and_back", f.andBack},
	} {
		if !t.Run(s.name, func(t *testing.T) { s.run(ctx, t) }) {
			break // the next step begins where this one should have ended
		}
	}
	f.seen.finish(t)
}

// startFleet starts the cluster, with Volcano's device plugin on every node.
func startFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{nodes: []*fleetNode{newFleetNode(0, sandbox.NodeName, 4)}}
	o := sandbox.Options{Installed: true, InstallLater: true, StockScheduler: true, Topology: f.nodes[0].topology()}
	for i := 1; i <= 3; i++ {
		n := newFleetNode(i, fmt.Sprintf("gpu-%d", i), 2)
		f.nodes = append(f.nodes, n)
		o.Hollow = append(o.Hollow, sandbox.HollowNode{Name: n.name, Topology: n.topology()})
	}
	f.world = start(t, o)
	ctx, u := f.world.user(t, "fleet", 10*time.Minute)
	f.user = u
	f.legacyConfiguration(ctx, t)
	f.layOutLibrary(t)
	for _, n := range f.nodes {
		f.startLegacy(ctx, t, n)
		t.Cleanup(n.stopLegacy)
	}
	f.seen = watchBooks(t, f)
	return f
}

// newFleetNode names the GPUs of a node, so that no two in the fleet are called alike.
func newFleetNode(number int, name string, gpus int) *fleetNode {
	n := &fleetNode{name: name}
	for i := range gpus {
		uuid := fmt.Sprintf("GPU-%08d-0000-0000-0000-%012d", number, i)
		n.devices = append(n.devices, otherplugin.Device{UUID: uuid, Model: "NVIDIA A100-PCIE-40GB", MemoryMiB: fleetMiB, Index: i})
	}
	return n
}

func (n *fleetNode) topology() string {
	var b strings.Builder
	b.WriteString("fakegpu 1\ndriver 580.95.05 cuda 13.0\n")
	for i, d := range n.devices {
		fmt.Fprintf(&b, "gpu model=%q memory=%dMiB cc=8.0 numa=0 mig=capable pci=0000:%02x:00.0 sms=108 uuid=%s\n", d.Model, d.MemoryMiB, 7+8*i, d.UUID)
	}
	return b.String()
}

// legacyConfiguration creates the ConfigMaps as an administrator of Volcano's device plugin has
// them. Fields that only that one reads are among them.
func (f *fleet) legacyConfiguration(ctx context.Context, t *testing.T) {
	t.Helper()
	device := fmt.Sprintf(`nvidia:
  resourceCountName: volcano.sh/vgpu-number
  resourceMemoryName: volcano.sh/vgpu-memory
  resourceMemoryPercentageName: volcano.sh/vgpu-memory-percentage
  resourceCoreName: volcano.sh/vgpu-cores
  overwriteEnv: false
  defaultMemory: 0
  defaultCores: 0
  defaultGPUNum: 1
  deviceSplitCount: %d
  deviceMemoryScaling: 1
  deviceCoreScaling: 1
  gpuMemoryFactor: %d
`, fleetSplit, fleetFactor)
	for name, data := range map[string]map[string]string{
		"volcano-vgpu-device-config": {"device-config.yaml": device},
		"volcano-vgpu-node-config":   {"config.json": `{"nodeconfig":[{"name":"gpu-1","operatingmode":"hami-core","devicememoryscaling":1,"devicesplitcount":10,"migstrategy":"none","filterdevices":{"uuid":[],"index":[]}}]}`},
	} {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
		if _, err := f.cluster.Client().CoreV1().ConfigMaps("kube-system").Create(ctx, cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// hookDir is the real node's /usr/local/vgpu as this process sees it.
func (f *fleet) hookDir() string { return filepath.Join(f.cluster.Dir(), "vgpu") }

// layOutLibrary does what the postStart hook of Volcano's device plugin does: it copies the library
// to the host. Here that is the library of this repository.
func (f *fleet) layOutLibrary(t *testing.T) {
	t.Helper()
	library, err := os.ReadFile(filepath.Join(f.cluster.Dir(), "lib", "libvgpu.so"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"libvgpu.so": library, "ld.so.preload": []byte(otherplugin.GuestLibrary + "\n")} {
		if err := os.WriteFile(filepath.Join(f.hookDir(), name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if f.hook, err = os.Stat(filepath.Join(f.hookDir(), "libvgpu.so")); err != nil {
		t.Fatal(err)
	}
}

// hooksAreLeft expects the library of Volcano's device plugin to be there still: containers that it
// prepared mount it again when they restart, and HAMi-core takes its limits from variables.
func (f *fleet) hooksAreLeft(t *testing.T) {
	t.Helper()
	now, err := os.Stat(filepath.Join(f.hookDir(), "libvgpu.so"))
	if err != nil || !os.SameFile(now, f.hook) {
		t.Errorf("the library of Volcano's device plugin was replaced on the node: %v", err)
	}
}

// startLegacy starts Volcano's device plugin on a node and waits until the node offers its devices.
func (f *fleet) startLegacy(ctx context.Context, t *testing.T, n *fleetNode) {
	t.Helper()
	hooks := f.hookDir()
	if n.isHollow() {
		hooks = t.TempDir() // no container mounts it
	}
	var err error
	n.legacy, err = otherplugin.StartVGPU(ctx, otherplugin.VGPUConfig{
		Client: f.cluster.Client(), Node: n.name, Devices: n.devices, Split: fleetSplit, Factor: fleetFactor,
		KubeletDir: f.cluster.KubeletDir(n.name), HookDir: hooks,
		Runtime: otherplugin.Runtime{Libraries: "/run/nvidia/driver/usr/lib/x86_64-linux-gnu", Dev: "/dev"},
	})
	if err != nil {
		t.Fatal(err)
	}
	f.offers(ctx, t, n)
}

func (n *fleetNode) stopLegacy() {
	if n.legacy != nil {
		n.legacy.Stop()
		n.legacy = nil
	}
}

// offers waits until a node offers all of its devices, in sharers, memory and compute.
func (f *fleet) offers(ctx context.Context, t *testing.T, n *fleetNode) {
	t.Helper()
	devices := int64(len(n.devices))
	want := map[corev1.ResourceName]int64{workload.Number: devices * fleetSplit, workload.Memory: devices * fleetMiB / fleetFactor, workload.Cores: devices * 100}
	f.node(ctx, t, n, fmt.Sprintf("offers %v", want), func(o *corev1.Node) bool {
		for name, amount := range want {
			if q := o.Status.Allocatable[name]; q.Value() != amount {
				return false
			}
		}
		return true
	})
}

// node waits until a node is as wanted.
func (f *fleet) node(ctx context.Context, t *testing.T, n *fleetNode, what string, want func(*corev1.Node) bool) {
	t.Helper()
	for {
		o, err := f.cluster.Client().CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
		if err == nil && want(o) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("wait until node %s %s: %v; allocatable %v, annotations %v", n.name, what, err, o.Status.Allocatable, o.Annotations)
		}
		sleep(ctx, 100*time.Millisecond)
	}
}
