// SPDX-License-Identifier: Apache-2.0

package containers_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	cncf "tags.cncf.io/container-device-interface/pkg/cdi"

	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/cluster"
	"deviceshare/deviceplugin/containers"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/kubelet/kubelettest"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/modes/factory"
	"deviceshare/deviceplugin/modes/modestest"
	nodemodel "deviceshare/deviceplugin/node"
	"deviceshare/deviceplugin/settings"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/wire"
)

const node = "node-1"

// bench is a node: a kubelet, an API server, devices, and a device plugin that can
// be restarted.
type bench struct {
	t       *testing.T
	kubelet *kubelettest.Kubelet
	api     *fake.Clientset
	dir     string
	agent   *agent.Agent
	driver  *drivertest.Driver
	mode    sharing.Mode
	locks   agent.KeyedLock
	// signatures are checked from the next start of the device plugin on.
	signatures interface {
		Require(string, wire.Signed) error
	}

	manager *containers.Manager
	store   *checkpoint.Store
	pods    *cluster.Pods
	gone    chan sharing.Owner
	broken  error
	rooms   modestest.Rooms
	stop    func()
}

// newBench is a node with two devices of forty slots each.
func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchOn(t, host.OS{})
}

// newBenchOn is one whose device plugin works on files.
func newBenchOn(t *testing.T, files host.Files) *bench {
	t.Helper()
	return newBenchIn(t, files, sharing.HAMiCore)
}

// newBenchIn is one whose devices are in a mode.
func newBenchIn(t *testing.T, files host.Files, mode sharing.Mode) *bench {
	t.Helper()
	b := &bench{t: t, mode: mode, kubelet: kubelettest.Start(t), api: fake.NewClientset(), dir: t.TempDir(), gone: make(chan sharing.Owner, 1000)}
	for _, d := range []string{"dev", "cdi", "lib", "state"} {
		must(t, os.MkdirAll(filepath.Join(b.dir, d), 0o755))
	}
	for minor := range 2 {
		must(t, os.WriteFile(filepath.Join(b.dir, "dev", fmt.Sprintf("nvidia%d", minor)), nil, 0o600))
	}
	must(t, os.WriteFile(filepath.Join(b.dir, "lib", "libvgpu.so"), []byte("library"), 0o600))
	must(t, os.WriteFile(filepath.Join(b.dir, "lib", "deviceshare-hook"), []byte("hook"), 0o600))
	b.driver = drivertest.New(drivertest.A100(0), drivertest.A100(1))
	must(t, b.driver.Open())
	b.partitioned()
	found, err := driver.Scan(b.driver)
	must(t, err)
	b.agent = agent.New(nodemodel.Config{Node: node}, nil)
	b.agent.Send(nodemodel.Configured{Settings: nodemodel.Settings{Offers: all{mode}}})
	b.agent.Send(nodemodel.Scanned{Devices: found})
	b.start(files)
	t.Cleanup(func() { b.stop() })
	return b
}

// all offers every device in a mode.
type all struct{ mode sharing.Mode }

func (a all) Offer(*nodemodel.Facts) nodemodel.Offer {
	return nodemodel.Offer{Mode: a.mode, MemoryScaling: 1, CoreScaling: 1, MaxShares: 40}
}

// breaks breaks the first devices, or lets them work again.
func (b *bench) breaks(id sharing.DeviceID, why string) {
	if why == "" {
		b.agent.Send(nodemodel.Answered{Device: id})
		return
	}
	b.agent.Send(nodemodel.Silent{Device: id, Why: why})
}

func (b *bench) inventory() *sharing.Inventory {
	inv := b.agent.State().Inventory()
	return &inv
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start starts the device plugin over files.
func (b *bench) start(files host.Files) {
	t := b.t
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	b.store, b.broken, err = checkpoint.Open(files, filepath.Join(b.dir, "state", "checkpoint.json"))
	must(t, err)
	b.pods, err = cluster.NewPods(b.api, node, b)
	must(t, err)
	go b.pods.Run(ctx)
	if !b.pods.WaitForSync(ctx) {
		t.Fatal("the pods are not known")
	}
	resources, err := kubelet.DialPodResources(b.kubelet.PodResources(), offer{b})
	must(t, err)
	resolver := &kubelet.Resolver{
		Checkpoint: kubelet.Directory(b.kubelet.Directory), Resources: resources, Pods: b.pods,
		Resource: offer{b}, Memory: offer{b}, Patience: 200 * time.Millisecond,
	}
	b.manager = containers.New(containers.Config{
		Pods: b.pods, Resolver: resolver, Store: b.store,
		Preparers: factory.New(factory.Config{Files: files, Space: b.space(files), StateDir: filepath.Join(b.dir, "state"),
			LibraryDir: filepath.Join(b.dir, "lib"), MIG: b.hardware(files)}),
		Base:  &cdi.Files{DevRoot: filepath.Join(b.dir, "dev"), Minors: b.agent, MIG: b.capabilities()},
		Specs: &cdi.Directory{Files: files, Path: filepath.Join(b.dir, "cdi")},
		Node:  b.agent, Devices: &b.locks,
		Terms:   defaults{},
		Kubelet: kubelet.Directory(b.kubelet.Directory), Resource: offer{b},
		Settle: time.Millisecond, Reader: cdi.NewReader(filepath.Join(b.dir, "cdi")), Signatures: b.signatures, Wait: 5 * time.Minute, Observer: unobserved{},
	})
	s := kubelet.NewServer(kubelet.ServerConfig{
		Directory: b.kubelet.Plugins(), Socket: "deviceshare.sock", Offer: offer{b},
		Handler: b.manager,
	})
	ended := make(chan struct{})
	go func() { defer close(ended); _ = s.Run(ctx) }()
	b.stop = func() {
		cancel()
		<-ended
		_ = resources.Close()
	}
	b.kubelet.Await(t, "the device plugin", func(healthy, _, _ int) bool { return healthy == 80 })
}

// defaults are the terms of a node without settings.
type defaults struct{}

func (defaults) Terms() settings.Terms {
	return settings.Terms{Names: podspec.DefaultNames(), Factor: 1}
}

// space bounds what containers can write, in effects of the same process as those on files.
func (b *bench) space(files host.Files) host.Space {
	if c, ok := files.(*modestest.Crashing); ok {
		return c.Space(&b.rooms)
	}
	return &b.rooms
}

// restart is a device plugin that dies and comes back.
func (b *bench) restart(files host.Files) {
	b.t.Helper()
	b.stop()
	seen := 0
	b.kubelet.Await(b.t, "that the device plugin is gone", func(healthy, _, registrations int) bool { seen = registrations; return healthy == 0 })
	b.start(files)
	b.kubelet.Await(b.t, "the restarted device plugin", func(_, _, registrations int) bool { return registrations > seen })
}

// PodGone implements cluster.PodObserver.
func (b *bench) PodGone(o sharing.Owner) { b.gone <- o }

// offer is the node's slots, and the manager's memory of allocations.
type offer struct{ b *bench }

func (offer) ResourceName() string { return wire.ResourceNumber }

func (o offer) Devices() []*pluginapi.Device {
	return kubelet.Slots(o.b.agent.State().Slots(), -1)
}

func (o offer) Changes() (<-chan struct{}, func()) { return o.b.agent.Changes() }

func (o offer) Remembered(owner sharing.Owner, container string, slots []string) (string, bool) {
	return o.b.manager.Remembered(owner, container, slots)
}

// unobserved tells nobody.
type unobserved struct{}

func (unobserved) Allocated()                                       {}
func (unobserved) Prepared(*corev1.Pod, modes.Claim, time.Duration) {}
func (unobserved) Refused(*corev1.Pod, error)                       {}
func (unobserved) Edited(*corev1.Pod, string)                       {}
func (unobserved) Released(sharing.Owner, error)                    {}

// remove ends a pod and releases what it had.
func (b *bench) remove(pod *corev1.Pod) {
	b.t.Helper()
	must(b.t, b.api.CoreV1().Pods(pod.Namespace).Delete(context.Background(), pod.Name, metav1.DeleteOptions{}))
	select {
	case owner := <-b.gone:
		must(b.t, b.manager.Release(context.Background(), owner))
	case <-time.After(10 * time.Minute):
		b.t.Fatal("nobody noticed that the pod is gone")
	}
}

func (b *bench) await(what string, done func() bool) {
	b.t.Helper()
	deadline := time.Now().Add(10 * time.Minute)
	for !done() {
		if time.Now().After(deadline) {
			b.t.Fatalf("still waiting for %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// begin starts a container and returns its environment as the container runtime
// composes it: with the CDI library, from the names the kubelet hands over.
func (b *bench) begin(pod *corev1.Pod, container string) ([]string, error) {
	names, err := b.kubelet.Begin(context.Background(), pod, container)
	if err != nil {
		return nil, err
	}
	cache, err := cncf.NewCache(cncf.WithSpecDirs(filepath.Join(b.dir, "cdi")), cncf.WithAutoRefresh(false))
	if err != nil {
		return nil, err
	}
	spec := &oci.Spec{Process: &oci.Process{Env: []string{"CUDA_DEVICE_MEMORY_LIMIT_0=999999m"}}}
	// The nodes of a test are files, which the library would refuse as devices;
	// everything else about the specification is real.
	unresolved := []string{}
	for _, name := range names {
		d := cache.GetDevice(name)
		if d == nil {
			unresolved = append(unresolved, name)
			continue
		}
		d.ContainerEdits.DeviceNodes = nil
		must(b.t, d.ApplyEdits(spec))
	}
	if len(unresolved) > 0 || len(names) == 0 {
		return nil, errors.New("unresolvable CDI devices " + strings.Join(unresolved, ","))
	}
	// runc lets the last of several variables of one name win.
	values := map[string]string{}
	for _, line := range spec.Process.Env {
		key, _, _ := strings.Cut(line, "=")
		values[key] = line
	}
	return slices.Sorted(maps.Values(values)), nil
}

// beginAgain is begin, again for as long as the devices are busy, as a kubelet does: while the disk
// stands still, so does whoever has them. Ten minutes end what hangs.
func (b *bench) beginAgain(pod *corev1.Pod, container string) ([]string, error) {
	for deadline := time.Now().Add(10 * time.Minute); ; {
		env, err := b.begin(pod, container)
		if err == nil || !strings.Contains(err.Error(), "no holder has released it") || time.Now().After(deadline) {
			return env, err
		}
	}
}

// limit is the memory limit of the first device in an environment.
func limit(env []string) string {
	for _, line := range env {
		if value, ok := strings.CutPrefix(line, "CUDA_DEVICE_MEMORY_LIMIT_0="); ok {
			return value
		}
	}
	return "none"
}

// files lists everything the device plugin keeps on the host, without contents of
// the checkpoint.
func (b *bench) files() string {
	var all strings.Builder
	for _, top := range []string{"cdi", "state"} {
		_ = filepath.WalkDir(filepath.Join(b.dir, top), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				rel, _ := filepath.Rel(b.dir, path)
				text, _ := os.ReadFile(path)
				fmt.Fprintf(&all, "%s %q\n", rel, text)
			}
			return nil
		})
	}
	return all.String()
}
