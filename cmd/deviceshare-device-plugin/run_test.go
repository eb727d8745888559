// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"deviceshare/config"
	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/kubelet/kubelettest"
	"deviceshare/deviceplugin/modes/modestest"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// program is the whole program over a fake driver, API server and kubelet.
type program struct {
	t       *testing.T
	api     *fake.Clientset
	kubelet *kubelettest.Kubelet
	driver  *drivertest.Driver
	plugin  *plugin
	dir     string
	tune    func(*options) // nil leaves them as they are
	end     func()         // stops the plugin and waits
}

func launch(t *testing.T, prepare ...func(*program)) *program {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("the program mounts file systems: that takes root")
	}
	p := &program{
		t: t, kubelet: kubelettest.Start(t), dir: t.TempDir(), driver: drivertest.New(drivertest.A100(0), drivertest.A100(1)),
		api: fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}),
	}
	for _, d := range []string{"dev", "lib"} {
		if err := os.MkdirAll(filepath.Join(p.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"dev/nvidia0", "dev/nvidia1", "lib/libvgpu.so", "lib/deviceshare-hook"} {
		if err := os.WriteFile(filepath.Join(p.dir, f), modestest.Library(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range prepare {
		f(p)
	}
	t.Cleanup(func() { unmountBelow(t, p.dir) })
	p.start()
	t.Cleanup(func() { p.end() })
	return p
}

// unmountBelow takes away what the program mounted for containers that it has not seen the end of.
func unmountBelow(t *testing.T, dir string) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	if err != nil {
		t.Error(err)
	}
	for _, m := range mounts {
		if err := unix.Unmount(m.Mountpoint, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", m.Mountpoint, err)
		}
	}
}

// start starts the plugin, the first one or one after another.
func (p *program) start() {
	p.t.Helper()
	o := defaultOptions()
	o.nodeName, o.places.Root, o.runtime.Specs, o.modes.StateDir = "n", kubelet.Directory(p.kubelet.Directory), filepath.Join(p.dir, "cdi"), filepath.Join(p.dir, "state")
	o.modes.LibraryDir, o.base.DevRoot, o.base.Edits = filepath.Join(p.dir, "lib"), filepath.Join(p.dir, "dev"), "files"
	o.metricsAddress, o.settle, o.healthProbe, o.health.Quiet = "", time.Millisecond, 5*time.Millisecond, 20*time.Millisecond
	o.driverRetry, o.runtime.Sockets = 20*time.Millisecond, nil
	if p.tune != nil {
		p.tune(o)
	}
	var err error
	if p.plugin, err = assemblePlugin(p.api, p.driver, o); err != nil {
		p.t.Fatal(err)
	}
	plugin := p.plugin
	ctx, cancel := context.WithCancel(context.Background())
	group, ctx := errgroup.WithContext(ctx)
	plugin.startParts(ctx, group)
	p.end = sync.OnceFunc(func() {
		cancel()
		if err := group.Wait(); err != nil {
			p.t.Errorf("the program ended with %v", err)
		}
		plugin.report.Stop()
	})
}

func (p *program) node() *corev1.Node {
	p.t.Helper()
	n, err := p.api.CoreV1().Nodes().Get(context.Background(), "n", metav1.GetOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *program) await(what string, done func() bool) {
	p.t.Helper()
	deadline := time.Now().Add(10 * time.Minute) // ends what hangs; says nothing about speed
	for pause := 5 * time.Millisecond; !done(); pause = min(2*pause, 50*time.Millisecond) {
		if time.Now().After(deadline) {
			p.t.Fatalf("still waiting for %s", what)
		}
		time.Sleep(pause)
	}
}

// event awaits an event whose message has a part.
func (p *program) event(reason, part string) {
	p.t.Helper()
	p.await("event "+reason, func() bool {
		list, err := p.api.CoreV1().Events("").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			p.t.Fatal(err)
		}
		for _, e := range list.Items {
			if e.Reason == reason && strings.Contains(e.Message, part) {
				return true
			}
		}
		return false
	})
}

// configure writes the node ConfigMap.
func (p *program) configure(text string) {
	p.t.Helper()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: config.NodeName, ResourceVersion: text},
		Data:       map[string]string{config.NodeKey: text},
	}
	api := p.api.CoreV1().ConfigMaps("kube-system")
	if _, err := api.Update(context.Background(), cm, metav1.UpdateOptions{}); err != nil {
		if _, err := api.Create(context.Background(), cm, metav1.CreateOptions{}); err != nil {
			p.t.Fatal(err)
		}
	}
}

// inventory is what the node publishes.
func (p *program) inventory() sharing.Inventory {
	p.t.Helper()
	inv, found, err := wire.ReadNode(p.node().Annotations, "n", 1)
	if err != nil {
		p.t.Fatal(err)
	}
	if !found {
		return sharing.Inventory{}
	}
	return inv
}

func TestFromTheDriverToTheContainerAndBack(t *testing.T) {
	p := launch(t)
	p.kubelet.Await(t, "twenty slots", func(healthy, _, _ int) bool { return healthy == 20 })
	p.await("the inventory", func() bool { return len(p.inventory().Devices) == 2 })
	p.await("the memory", func() bool {
		q := p.node().Status.Capacity[wire.ResourceMemory]
		return q.Value() == 2*81920
	})
	device := p.inventory().Devices[0].ID
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid"},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{
			Limits: corev1.ResourceList{wire.ResourceNumber: resource.MustParse("1"), wire.ResourceMemory: resource.MustParse("1000")},
		}}}},
	}
	share := sharing.Share{Device: device, Mode: sharing.HAMiCore, Memory: sharing.MiBs(1000)}
	var err error
	pod.Annotations, err = wire.PlacementAnnotations(sharing.Placement{
		Node: "n", Containers: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{share}}},
	}, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.api.CoreV1().Pods("ns").Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.kubelet.Admit(pod); err != nil {
		t.Fatal(err)
	}
	names, err := p.kubelet.Begin(context.Background(), pod, "main")
	if err != nil {
		t.Fatal(err)
	}
	id := strings.TrimPrefix(names[len(names)-1], "volcano.sh/vgpu=")
	spec := filepath.Join(p.dir, "cdi", "volcano.sh-vgpu-"+id+".json")
	if text, err := os.ReadFile(spec); err != nil || !strings.Contains(string(text), "CUDA_DEVICE_MEMORY_LIMIT_0=1000m") {
		t.Errorf("the specification is %s, %v", text, err)
	}
	if err := p.api.CoreV1().Pods("ns").Delete(context.Background(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.await("the release", func() bool {
		_, err := os.Stat(spec)
		return errors.Is(err, os.ErrNotExist) && len(p.plugin.store.All()) == 0
	})
}

func (p *program) offered() int {
	p.t.Helper()
	n, inv := 0, p.inventory()
	for i := range inv.Devices {
		if inv.Devices[i].Healthy {
			n++
		}
	}
	return n
}

// awaitOffer waits until both devices are offered and the kubelet has taken in their slots: what
// was sent to it may not have been read.
func (p *program) awaitOffer() {
	p.t.Helper()
	p.await("the devices", func() bool { return p.offered() == 2 })
	p.kubelet.Await(p.t, "their slots", func(healthy, _, _ int) bool { return healthy == 20 })
}

// A pod that meets a kubelet which does not know the devices has failed for good.
func TestNoPodIsSentWhileTheKubeletDoesNotKnowTheDevices(t *testing.T) {
	p := launch(t)
	p.awaitOffer()
	again := p.kubelet.HoldRegistrations("")
	p.kubelet.Drop()
	p.await("the devices to be withheld", func() bool { return p.offered() == 0 })
	if d := p.inventory().Devices[0]; !strings.Contains(d.Reason, "the kubelet does not know the devices") {
		t.Errorf("the reason is %q", d.Reason)
	}
	again()
	p.awaitOffer()
}

// never is a time that no test reaches.
const never = time.Hour

func TestAPluginThatIsToldToStopTakesItsDevicesBackFirst(t *testing.T) {
	p := launch(t)
	p.awaitOffer()
	told, tell := context.WithCancel(t.Context())
	working, end := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() { defer close(left); p.plugin.agent.Leave(told, working, p.plugin.slots, never) }()
	select {
	case <-left:
		t.Fatal("it leaves without being told")
	case <-time.After(20 * time.Millisecond):
	}
	tell()
	p.await("the devices to be withheld", func() bool { return p.offered() == 0 })
	if d := p.inventory().Devices[0]; d.Reason != "the device plugin of this node was stopped" {
		t.Errorf("the reason is %q", d.Reason)
	}
	select {
	case <-left:
		t.Error("it left before the pods that were on their way could come")
	default:
	}
	p.kubelet.Await(t, "slots for those", func(healthy, _, _ int) bool { return healthy == 20 })
	end()
	<-left
}

func TestAPluginThatIsToldToStopDoesNotStayForEver(t *testing.T) {
	p := launch(t)
	p.awaitOffer()
	told, tell := context.WithCancel(t.Context())
	tell()
	p.plugin.agent.Leave(told, t.Context(), p.plugin.slots, 10*time.Millisecond)
}

func TestAPluginWithoutADriverStopsAtOnce(t *testing.T) {
	p := launch(t, func(p *program) { p.driver.Miss(errors.New("not found")) })
	told, tell := context.WithCancel(t.Context())
	tell()
	p.plugin.agent.Leave(told, t.Context(), p.plugin.slots, never)
}

func TestARefusedStartIsAnEventOfThePod(t *testing.T) {
	p := launch(t)
	p.kubelet.Await(t, "the slots", func(healthy, _, _ int) bool { return healthy == 20 })
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid"},
		Spec: corev1.PodSpec{NodeName: "n", SchedulerName: "default-scheduler", Containers: []corev1.Container{{Name: "main",
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{wire.ResourceNumber: resource.MustParse("1")}}}}},
	}
	if _, err := p.api.CoreV1().Pods("ns").Create(context.Background(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.kubelet.Admit(pod); err != nil {
		t.Fatal(err)
	}
	if _, err := p.kubelet.Begin(context.Background(), pod, "main"); err == nil {
		t.Error("a pod that nobody placed was started")
	}
	p.event("DevicePrepareFailed", "set spec.schedulerName")
}

func TestEditsOfTheConfigurationTakeEffectAndBadOnesAreReported(t *testing.T) {
	p := launch(t, func(p *program) {
		p.configure(`{"nodeconfig":[{"name":"n","devicesplitcount":3}]}`)
	})
	p.kubelet.Await(t, "six slots", func(healthy, _, _ int) bool { return healthy == 6 })
	p.configure(`{"nodeconfig":[{"name":"n","devicesplitcount":4,"operatingmode":"time-slicing"}]}`)
	p.kubelet.Await(t, "eight slots", func(healthy, _, _ int) bool { return healthy == 8 })
	p.await("the mode", func() bool {
		inv := p.inventory()
		return len(inv.Devices) == 2 && inv.Devices[0].Mode == sharing.TimeSlicing
	})
	p.configure(`{"nodeconfig":[{"name":"n","operatingmode":"magic","devicesplitcount":-1}]}`)
	p.event("DeviceConfigInvalid", "nodeconfig[0].operatingmode")
	if inv := p.inventory(); inv.Devices[0].Mode != sharing.TimeSlicing || inv.Devices[0].MaxShares != 4 {
		t.Errorf("a bad edit changed the node: %+v", inv.Devices[0])
	}
}

func TestAModeThatTheNodeCannotServeIsNotOffered(t *testing.T) {
	p := launch(t, func(p *program) {
		p.configure(`{"nodeconfig":[{"name":"n","operatingmode":"mps"}]}`)
	})
	p.event("GPUModeUnusable", "mode mps")
	p.await("devices that cannot be used", p.healthy(false))
	p.configure(`{"nodeconfig":[{"name":"n","operatingmode":"hami-core"}]}`)
	p.await("devices that can", p.healthy(true))
}

func TestADriverThatIsMissingIsAnEventAndTheNodeComesUpLater(t *testing.T) {
	p := launch(t, func(p *program) { p.driver.Miss(errors.New("libnvidia-ml.so.1 not found")) })
	p.event("GPUDriverUnavailable", "libnvidia-ml.so.1 not found")
	if _, published := p.node().Annotations[wire.NodeInventory]; published {
		t.Error("something was published without a driver")
	}
	p.driver.Miss(nil)
	p.kubelet.Await(t, "the slots", func(healthy, _, _ int) bool { return healthy == 20 })
}

func TestWhatTheOldDevicePluginLeftIsSaidAndWaitedFor(t *testing.T) {
	p := launch(t, func(p *program) {
		text := `{"Data":{"PodDeviceEntries":[],"RegisteredDevices":{"volcano.sh/vgpu-memory":[]}},"Checksum":1}`
		if err := os.WriteFile(p.kubelet.Checkpoint(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	p.await("the inventory", func() bool { return len(p.inventory().Devices) == 2 })
	p.event("DeviceAmountsInTransition", "five minutes")
	if _, published := p.node().Status.Capacity[wire.ResourceMemory]; published {
		t.Error("memory is in the capacity although the kubelet would write 0 over it")
	}
	if err := os.WriteFile(p.kubelet.Checkpoint(), []byte(`{"Data":{"PodDeviceEntries":[],"RegisteredDevices":{}},"Checksum":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p.driver.Lose(1) // any change makes it look again
	p.await("the memory", func() bool {
		q := p.node().Status.Capacity[wire.ResourceMemory]
		return q.Value() == 2*81920
	})
}

func TestABrokenDeviceLeavesThePoolAndComesBack(t *testing.T) {
	p := launch(t)
	memory := func() bool {
		q := p.node().Status.Capacity[wire.ResourceMemory]
		return q.Value() == 2*81920
	}
	p.kubelet.Await(t, "the slots", func(healthy, _, _ int) bool { return healthy == 20 })
	p.await("the capacity", memory)
	p.driver.Lose(1)
	p.event("GPUUnhealthy", "lost")
	p.await("the inventory", func() bool { inv := p.inventory(); return len(inv.Devices) == 2 && !inv.Devices[1].Healthy })
	if !memory() {
		t.Error("the broken device left the capacity that its pods are counted in")
	}
	p.kubelet.Await(t, "the slots, which stay", func(healthy, all, _ int) bool { return healthy == 20 && all == 20 })
	p.driver.Restore(1)
	p.await("the inventory", func() bool { inv := p.inventory(); return len(inv.Devices) == 2 && inv.Devices[1].Healthy })
}
