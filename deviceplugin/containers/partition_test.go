// SPDX-License-Identifier: Apache-2.0

package containers_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/driver/migtest"
	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes/modestest"
	"deviceshare/sharing"
)

// partitioned makes what mode mig needs on the node.
func (b *bench) partitioned() {
	if b.mode != sharing.MIG {
		return
	}
	caps := filepath.Join(b.dir, "dev", "nvidia-caps")
	must(b.t, os.MkdirAll(caps, 0o755))
	var table strings.Builder
	add := func(minor int, capability string, of ...any) {
		fmt.Fprintf(&table, capability+" %d\n", append(of, minor)...)
		must(b.t, os.WriteFile(filepath.Join(caps, fmt.Sprintf("nvidia-cap%d", minor)), nil, 0o600))
	}
	for gpu := range 2 {
		for gi := range 8 {
			add(100*gpu+10*gi+3, "gpu%d/gi%d/access", gpu, gi)
			add(100*gpu+10*gi+4, "gpu%d/gi%d/ci0/access", gpu, gi)
		}
	}
	must(b.t, os.WriteFile(filepath.Join(b.dir, "mig-minors"), []byte(table.String()), 0o600))
	for gpu := range 2 {
		b.driver.Switch(b.device(gpu), true)
	}
}

// device is the id of a device by index.
func (b *bench) device(index int) sharing.DeviceID {
	devices, err := b.driver.Devices()
	must(b.t, err)
	facts, err := devices[index].Facts()
	must(b.t, err)
	return facts.UUID
}

// hardware is the driver of a process that dies where its files do.
func (b *bench) hardware(files host.Files) driver.Partitions {
	if c, ok := files.(*modestest.Crashing); ok {
		return migtest.Crashing(b.driver, c)
	}
	return b.driver
}

func (b *bench) capabilities() cdi.Capabilities {
	return cdi.Capabilities{
		Minors: filepath.Join(b.dir, "mig-minors"), Root: filepath.Join(b.dir, "dev", "nvidia-caps"), Devices: b.driver,
	}
}

// part is a place in a listed geometry.
func part(profile string, start, size int) sharing.Partition {
	return sharing.Partition{Profile: profile, Start: start, Size: size, Geometry: "group1", Position: start}
}

// onePart is a bench on which smaller instances that nobody holds are where its
// one pod is to get its own.
func onePart(t *testing.T, files host.Files) (*bench, *corev1.Pod) {
	t.Helper()
	b := newBenchIn(t, files, sharing.MIG)
	for _, start := range []int{4, 6} {
		gi, err := b.driver.CreateGPUInstance(b.device(0), "1g.10gb", start)
		must(t, err)
		_, err = b.driver.CreateComputeInstance(b.device(0), gi)
		must(t, err)
	}
	pod := b.pod("p", ask{name: "main", devices: []int{0}, mib: 40192, part: part("3g.40gb", 4, 4)})
	must(t, b.kubelet.Admit(pod))
	return b, pod
}

// got says what the container of a pod has: the place of its MIG device, if its
// specification opens that device and no other.
func (b *bench) got(pod *corev1.Pod) string {
	b.t.Helper()
	records := b.store.Of(sharing.Owner(pod.UID))
	if len(records) != 1 {
		return fmt.Sprintf("%d records", len(records))
	}
	uuid := records[0].Devices[0].Partition.UUID
	at, err := b.driver.MIGDevice(uuid)
	if err != nil {
		return err.Error()
	}
	text, err := os.ReadFile(filepath.Join(b.dir, "cdi", cdi.File(records[0].ID)))
	must(b.t, err)
	nodes := regexp.MustCompile(`"path": "/dev/nvidia[^"]*`).FindAllString(string(text), -1)
	want := fmt.Sprintf(`"path": "/dev/nvidia-caps/nvidia-cap%d "path": "/dev/nvidia-caps/nvidia-cap%d "path": "/dev/nvidia%d`,
		100*at.Minor+10*at.GI+3, 100*at.Minor+10*at.GI+4, at.Minor)
	if got := strings.Join(nodes, " "); got != want {
		return fmt.Sprintf("nodes %s, want %s", got, want)
	}
	all, err := b.driver.Instances(at.Parent)
	must(b.t, err)
	for _, in := range all {
		if in.GI == at.GI {
			return fmt.Sprintf("%s at %d of device %d", in.Profile, in.Start, at.Minor)
		}
	}
	return "nothing"
}

const itsOwn = "3g.40gb at 4 of device 0"

func TestAContainerGetsTheNodesOfItsPartitionAndNoOthers(t *testing.T) {
	b, pod := onePart(t, host.OS{})
	_, err := b.begin(pod, "main")
	must(t, err)
	if got := b.got(pod); got != itsOwn {
		t.Errorf("the container has %s", got)
	}
	small := b.pod("small", ask{name: "main", devices: []int{1}, mib: 9728, part: part("1g.10gb", 6, 1)})
	must(t, b.kubelet.Admit(small))
	_, err = b.begin(small, "main")
	must(t, err)
	if got := b.got(small); got != "1g.10gb at 6 of device 1" {
		t.Errorf("the other container has %s", got)
	}
}

func TestARestartOfAContainerWithAPartitionWritesNothing(t *testing.T) {
	counting := &modestest.Crashing{Under: host.OS{}, At: -1}
	b, pod := onePart(t, counting)
	_, err := b.begin(pod, "main")
	must(t, err)
	before := counting.Effects()
	_, err = b.begin(pod, "main")
	must(t, err)
	if n := counting.Effects() - before; n != 0 {
		t.Errorf("the second start has %d effects", n)
	}
}

func TestACrashAtAnyEffectOfStartingWithAPartitionIsRepaired(t *testing.T) {
	for name, between := range map[string]func(*bench){
		"the plugin restarts": func(*bench) {},
		"the machine reboots": func(b *bench) {
			b.driver.Reboot()
			must(b.t, os.RemoveAll(filepath.Join(b.dir, "cdi"))) // a tmpfs
		},
	} {
		t.Run(name, func(t *testing.T) {
			counting := &modestest.Crashing{Under: host.OS{}, At: -1}
			b, pod := onePart(t, counting)
			before := counting.Effects()
			_, err := b.begin(pod, "main")
			must(t, err)
			total := counting.Effects() - before
			if total < 10 {
				t.Fatalf("a start has only %d effects; the test counts wrong", total)
			}
			for at := range 2 * total {
				b, pod := onePart(t, &modestest.Crashing{Under: host.OS{}, At: before + at/2, Late: at%2 == 1})
				if _, err := b.begin(pod, "main"); err == nil {
					t.Errorf("effect %d: the crash was not noticed", at/2)
				}
				between(b)
				b.restart(host.OS{})
				must(t, b.manager.Reconcile(context.Background()))
				_, err := b.begin(pod, "main")
				if got := b.got(pod); err != nil || got != itsOwn {
					t.Errorf("effect %d of %d (late %v): the container has %s, %v", at/2, total, at%2 == 1, got, err)
				}
			}
		})
	}
}

func TestACrashAtAnyEffectOfReleasingAPartitionIsRepaired(t *testing.T) {
	total := 1
	for at := 0; at <= 2*total; at++ {
		b, pod := onePart(t, host.OS{})
		_, err := b.begin(pod, "main")
		must(t, err)
		crash := &modestest.Crashing{Under: host.OS{}, At: -1}
		b.restart(crash)
		must(t, b.api.CoreV1().Pods("default").Delete(context.Background(), "p", metav1.DeleteOptions{}))
		must(t, b.kubelet.Forget(pod))
		owner := <-b.gone
		start := crash.Effects()
		if at > 0 { // the first round counts
			crash.At, crash.Late = start+(at-1)/2, at%2 == 0
		}
		err = b.manager.Release(context.Background(), owner)
		if at == 0 {
			must(t, err)
			total = crash.Effects() - start
		} else if err == nil {
			t.Errorf("effect %d: the crash was not noticed", (at-1)/2)
		}
		b.restart(host.OS{})
		must(t, b.manager.Reconcile(context.Background()))
		for _, line := range strings.Split(b.files(), "\n") {
			if strings.Contains(line, "uid-p") || strings.HasPrefix(line, "cdi/") {
				t.Errorf("effect %d: left behind: %s", (at-1)/2, line)
			}
		}
		next := b.pod("next", ask{name: "main", devices: []int{0}, mib: 80896, part: part("7g.80gb", 0, 8)})
		must(t, b.kubelet.Admit(next))
		_, err = b.begin(next, "main")
		if got := b.got(next); err != nil || got != "7g.80gb at 0 of device 0" {
			t.Errorf("effect %d: the next pod has %s, %v", (at-1)/2, got, err)
		}
	}
	if total < 3 {
		t.Errorf("a release has only %d effects; the test counts wrong", total)
	}
}

func TestALostCheckpointDoesNotLoseTheOwnersOfPartitions(t *testing.T) {
	b, pod := onePart(t, host.OS{})
	_, err := b.begin(pod, "main")
	must(t, err)
	must(t, os.Remove(filepath.Join(b.dir, "state", "checkpoint.json")))
	must(t, b.api.CoreV1().Pods("default").Delete(context.Background(), "p", metav1.DeleteOptions{}))
	must(t, b.kubelet.Forget(pod))
	b.restart(host.OS{})
	must(t, b.manager.Reconcile(context.Background()))
	if strings.Contains(b.files(), "uid-p") {
		t.Errorf("left behind:\n%s", b.files())
	}
}

func TestInitAndAppContainersOfAPodMayHaveTheSamePartition(t *testing.T) {
	b := newBenchIn(t, host.OS{}, sharing.MIG)
	pod := b.pod("p",
		ask{name: "warm-up", kind: sharing.Init, devices: []int{0}, mib: 40192, part: part("3g.40gb", 4, 4)},
		ask{name: "main", devices: []int{0}, mib: 40192, part: part("3g.40gb", 4, 4)})
	must(t, b.kubelet.Admit(pod))
	for _, container := range []string{"warm-up", "main", "warm-up", "main"} { // the pod starts anew once
		if _, err := b.begin(pod, container); err != nil {
			t.Errorf("container %s: %v", container, err)
		}
	}
	var uuids []string
	for _, r := range b.store.All() {
		uuids = append(uuids, r.Devices[0].Partition.UUID)
	}
	if len(uuids) != 2 || uuids[0] != uuids[1] || uuids[0] == "" {
		t.Errorf("they have %q, want the same", uuids)
	}
}

// Schedulers before have let an app container's partition overlap that of its init
// container. Both have the same slots, so every start prepares both.
func TestPartitionsOfOnePodThatOverlapNeverDestroyEachOther(t *testing.T) {
	b := newBenchIn(t, host.OS{}, sharing.MIG)
	pod := b.pod("p",
		ask{name: "warm-up", kind: sharing.Init, devices: []int{0}, mib: 9728, part: part("1g.10gb", 6, 1)},
		ask{name: "main", devices: []int{0}, mib: 80896, part: part("7g.80gb", 0, 8)})
	must(t, b.kubelet.Admit(pod))
	for n := range 10 {
		_, err := b.begin(pod, "warm-up")
		if err == nil || !strings.Contains(err.Error(), "its placement is wrong") {
			t.Fatalf("start %d: %v", n, err)
		}
		if all, err := b.driver.Instances(b.device(0)); err != nil || len(all) != 0 {
			t.Errorf("start %d: the device has %v, %v", n, all, err)
		}
	}
}

func TestTwoContainersThatRunTogetherNeverGetTheSamePartition(t *testing.T) {
	b := newBenchIn(t, host.OS{}, sharing.MIG)
	pod := b.pod("p",
		ask{name: "side", kind: sharing.Sidecar, devices: []int{0}, mib: 40192, part: part("3g.40gb", 4, 4)},
		ask{name: "main", devices: []int{0}, mib: 9728, part: part("1g.10gb", 5, 1)})
	must(t, b.kubelet.Admit(pod))
	for _, name := range []string{"side", "main"} {
		if _, err := b.begin(pod, name); err == nil || !strings.Contains(err.Error(), "hold what only one may") {
			t.Errorf("container %s: %v", name, err)
		}
	}
	if all, err := b.driver.Instances(b.device(0)); err != nil || len(all) != 0 {
		t.Errorf("the device has %v, %v", all, err)
	}
}
