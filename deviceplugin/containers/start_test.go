// SPDX-License-Identifier: Apache-2.0

package containers_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

func TestAContainerGetsWhatTheSchedulerGaveIt(t *testing.T) {
	b := newBench(t)
	pod := b.pod("p", ask{name: "main", devices: []int{1}, mib: 3000})
	must(t, b.kubelet.Admit(pod))
	env, err := b.begin(pod, "main")
	must(t, err)
	if got := limit(env); got != "3000m" {
		t.Errorf("the limit is %s, want 3000m over what the pod sets itself", got)
	}
	if !slices.Contains(env, "NVIDIA_VISIBLE_DEVICES=void") {
		t.Errorf("a default runtime would add devices: %v", env)
	}
}

func TestSixtyPodsAtOnceEachGetTheirOwn(t *testing.T) {
	b := newBench(t)
	var all []*corev1.Pod
	for i := range 60 {
		all = append(all, b.pod(fmt.Sprintf("p%02d", i), ask{name: "main", devices: []int{i % 2}, mib: int64(1000 + i)}))
	}
	var wait sync.WaitGroup
	for i, pod := range all {
		wait.Go(func() {
			if err := b.kubelet.Admit(pod); err != nil {
				t.Errorf("pod %d: %v", i, err)
				return
			}
			env, err := b.beginAgain(pod, "main")
			if want := fmt.Sprintf("%dm", 1000+i); err != nil || limit(env) != want {
				t.Errorf("pod %d got %s (%v), want %s", i, limit(env), err, want)
			}
		})
	}
	wait.Wait()
	for _, pod := range all {
		must(t, b.api.CoreV1().Pods("default").Delete(context.Background(), pod.Name, metav1.DeleteOptions{}))
	}
	for range all {
		must(t, b.manager.Release(context.Background(), <-b.gone))
	}
	if left := b.store.All(); len(left) != 0 {
		t.Errorf("%d records are left", len(left))
	}
}

func TestInitContainersAndTheAppContainerThatTakesOverTheirSlots(t *testing.T) {
	b := newBench(t)
	pod := b.pod("p",
		ask{name: "warm-up", devices: []int{0}, mib: 500, kind: sharing.Init},
		ask{name: "side", devices: []int{1}, mib: 700, kind: sharing.Sidecar},
		ask{name: "plain"},
		ask{name: "main", devices: []int{0}, mib: 4000})
	must(t, b.kubelet.Admit(pod))
	for _, c := range []struct{ name, want string }{{"warm-up", "500m"}, {"side", "700m"}, {"main", "4000m"}, {"warm-up", "500m"}} {
		env, err := b.begin(pod, c.name)
		if err != nil || limit(env) != c.want {
			t.Errorf("container %s got %s (%v), want %s", c.name, limit(env), err, c.want)
		}
	}
}

func TestAContainerThatRestartsGetsTheSameAgain(t *testing.T) {
	b := newBench(t)
	pod := b.pod("p", ask{name: "main", devices: []int{0, 1}, mib: 2000})
	must(t, b.kubelet.Admit(pod))
	first, err := b.begin(pod, "main")
	must(t, err)
	before := b.files()
	again, err := b.begin(pod, "main")
	must(t, err)
	if !slices.Equal(first, again) || b.files() != before {
		t.Errorf("the second start differs: %v, %v", first, again)
	}
}

func TestAfterARebootEverythingIsMadeAgain(t *testing.T) {
	b := newBench(t)
	pod := b.pod("p", ask{name: "main", devices: []int{0}, mib: 2000})
	must(t, b.kubelet.Admit(pod))
	_, err := b.begin(pod, "main")
	must(t, err)
	before := b.files()
	must(t, os.RemoveAll(b.dir+"/cdi")) // a tmpfs
	env, err := b.begin(pod, "main")
	if err != nil || limit(env) != "2000m" || b.files() != before {
		t.Errorf("after the reboot: %s, %v\n%s", limit(env), err, b.files())
	}
}

func TestIdentityDoesNotDependOnOneSource(t *testing.T) {
	cases := map[string]struct {
		spoil   func(*bench)
		refused string
	}{
		"a kubelet without Get is known by its checkpoint": {func(b *bench) { b.kubelet.OldKubelet = true }, ""},
		"an unreadable checkpoint is replaced by podresources and memory": {func(b *bench) {
			must(b.t, os.WriteFile(b.kubelet.Checkpoint(), []byte("{"), 0o600))
		}, ""},
		"a missing checkpoint and a restarted device plugin are served from the own checkpoint": {func(b *bench) {
			b.restart(host.OS{})
			must(b.t, os.Remove(b.kubelet.Checkpoint()))
		}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			pod := b.pod("p", ask{name: "main", devices: []int{0}, mib: 2000})
			must(t, b.kubelet.Admit(pod))
			_, err := b.begin(pod, "main")
			must(t, err)
			tc.spoil(b)
			env, err := b.begin(pod, "main")
			if err != nil || limit(env) != "2000m" {
				t.Errorf("got %s, %v", limit(env), err)
			}
		})
	}
}

func TestWithoutTheKubeletsCheckpointAnAppContainerKeepsItsOwnAllocation(t *testing.T) {
	b := newBench(t)
	pod := b.pod("p", ask{name: "warm-up", devices: []int{0}, mib: 500, kind: sharing.Init}, ask{name: "main", devices: []int{0}, mib: 4000})
	must(t, b.kubelet.Admit(pod))
	_, err := b.begin(pod, "main")
	must(t, err)
	b.restart(host.OS{}) // nothing is in memory
	must(t, os.Remove(b.kubelet.Checkpoint()))
	if env, err := b.begin(pod, "main"); err != nil || limit(env) != "4000m" {
		t.Errorf("main got %s, %v", limit(env), err)
	}
	if env, err := b.begin(pod, "warm-up"); err == nil && limit(env) != "500m" {
		t.Errorf("warm-up got another container's %s", limit(env))
	}
}

func TestWhatIsInDoubtIsRefusedWithAReason(t *testing.T) {
	cases := map[string]struct {
		spoil func(*bench, *corev1.Pod) // before admission, on the object
		want  string
	}{
		"a pod that no scheduler placed": {func(_ *bench, p *corev1.Pod) { p.Annotations = nil; p.Spec.SchedulerName = "default-scheduler" },
			`set spec.schedulerName to the scheduler that runs deviceshare, it is "default-scheduler"`},
		"a decision that cannot be read":       {func(_ *bench, p *corev1.Pod) { p.Annotations[wire.PodPlacement] = "{" }, "cannot be read"},
		"a decision for other containers":      {func(_ *bench, p *corev1.Pod) { p.Spec.Containers[0].Name = "other" }, "gave container other nothing"},
		"containers in virtual machines":       {func(_ *bench, p *corev1.Pod) { p.Spec.RuntimeClassName = ptr.To("kata") }, "spec.runtimeClassName"},
		"users of its own":                     {func(_ *bench, p *corev1.Pod) { p.Spec.HostUsers = ptr.To(false) }, "spec.hostUsers"},
		"fewer devices than the kubelet slots": {twoSlots, "1 devices, the kubelet 2 slots"},
		"a device that is broken": {func(b *bench, _ *corev1.Pod) {
			inv := b.inventory()
			b.breaks(inv.Devices[0].ID, "XID 79")
		}, "is broken"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			pod := b.draft("p", ask{name: "main", devices: []int{0}, mib: 2000})
			tc.spoil(b, pod)
			_, err := b.api.CoreV1().Pods("default").Create(context.Background(), pod, metav1.CreateOptions{})
			must(t, err)
			b.await("the pod", func() bool { _, ok := b.pods.Pod(sharing.Owner(pod.UID)); return ok })
			must(t, b.kubelet.Admit(pod))
			_, err = b.begin(pod, pod.Spec.Containers[0].Name)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the error is %v\nwant %q in it", err, tc.want)
			}
			if !strings.Contains(fmt.Sprint(err), "default/p") {
				t.Errorf("the error %v does not name the pod", err)
			}
			if specs, _ := os.ReadDir(b.dir + "/cdi"); len(specs) != 0 {
				t.Errorf("a refused start left %v", specs)
			}
		})
	}
}

func twoSlots(_ *bench, p *corev1.Pod) {
	q := p.Spec.Containers[0].Resources.Limits[wire.ResourceNumber]
	q.Set(2)
	p.Spec.Containers[0].Resources.Limits[wire.ResourceNumber] = q
}

func TestASlotOfTwoLivePodsIsRefusedToBoth(t *testing.T) {
	b := newBench(t)
	one := b.pod("one", ask{name: "main", devices: []int{0}, mib: 1000})
	two := b.pod("two", ask{name: "main", devices: []int{0}, mib: 2000})
	must(t, b.kubelet.Admit(one))
	must(t, b.kubelet.GiveTwice(one, two))
	for _, pod := range []*corev1.Pod{one, two} {
		_, err := b.begin(pod, "main")
		if err == nil || !strings.Contains(err.Error(), kubelet.ErrTwoOwners.Error()) {
			t.Errorf("pod %s: %v, want that two pods have the slot", pod.Name, err)
		}
	}
	b.remove(one)
	env, err := b.begin(two, "main")
	if err == nil {
		t.Logf("after the other one is gone the survivor starts with %s", limit(env))
	}
	if err == nil && limit(env) != "2000m" {
		t.Errorf("the survivor got %s", limit(env))
	}
}

func TestAPodThatWasReplacedUnderTheSameNameIsNotMistaken(t *testing.T) {
	b := newBench(t)
	old := b.pod("p", ask{name: "main", devices: []int{0}, mib: 1000})
	must(t, b.kubelet.Admit(old))
	b.remove(old)
	fresh := b.draft("p", ask{name: "main", devices: []int{1}, mib: 2000})
	fresh.UID = types.UID("uid-new")
	_, err := b.api.CoreV1().Pods("default").Create(context.Background(), fresh, metav1.CreateOptions{})
	must(t, err)
	if _, err := b.begin(old, "main"); err == nil {
		t.Error("the old pod's container was started with the new pod's devices")
	}
}
