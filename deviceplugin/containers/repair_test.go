// SPDX-License-Identifier: Apache-2.0

package containers_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes/modestest"
	"deviceshare/sharing"
)

// onePod is a bench whose one pod is admitted and not started.
func onePod(t *testing.T) (*bench, *corev1.Pod) {
	t.Helper()
	return onePodOn(t, host.OS{})
}

func onePodOn(t *testing.T, files host.Files) (*bench, *corev1.Pod) {
	t.Helper()
	b := newBenchOn(t, files)
	pod := b.pod("p", ask{name: "main", devices: []int{0}, mib: 2000})
	must(t, b.kubelet.Admit(pod))
	return b, pod
}

// normal hides the random allocation id and the temporary directory.
func normal(b *bench) string {
	text := strings.ReplaceAll(b.files(), b.dir, "")
	for _, r := range b.store.All() {
		text = strings.ReplaceAll(text, r.ID, "ID")
	}
	lines := strings.Split(text, "\n")
	kept := lines[:0]
	for _, l := range lines {
		if !strings.HasPrefix(l, "state/checkpoint.json") { // its checksum depends on the id
			kept = append(kept, l)
		}
	}
	return strings.Join(kept, "\n")
}

func TestACrashAtAnyEffectOfAStartIsRepairedByTheNextStart(t *testing.T) {
	counting := &modestest.Crashing{Under: host.OS{}, At: -1}
	b, pod := onePodOn(t, counting)
	before := counting.Effects()
	_, err := b.begin(pod, "main")
	must(t, err)
	want := normal(b)
	total := counting.Effects() - before
	if total < 5 {
		t.Fatalf("a start has only %d effects; the test counts wrong", total)
	}
	for at := range 2 * total {
		b, pod := onePodOn(t, &modestest.Crashing{Under: host.OS{}, At: before + at/2, Late: at%2 == 1})
		if _, err := b.begin(pod, "main"); err == nil {
			t.Errorf("effect %d: the crash was not noticed", at/2)
		}
		b.restart(host.OS{})
		env, err := b.begin(pod, "main")
		if err != nil || limit(env) != "2000m" {
			t.Errorf("effect %d (late %v): after the repair %s, %v", at/2, at%2 == 1, limit(env), err)
		}
		if got := normal(b); got != want {
			t.Errorf("effect %d (late %v): after the repair the host is\n%s\nwant\n%s", at/2, at%2 == 1, got, want)
		}
	}
}

func TestACrashAtAnyEffectLeavesNothingOnceThePodIsGone(t *testing.T) {
	for at := range 10 {
		b, pod := onePodOn(t, &modestest.Crashing{Under: host.OS{}, At: at/2 + 1, Late: at%2 == 1})
		_, _ = b.begin(pod, "main")
		must(t, b.api.CoreV1().Pods("default").Delete(context.Background(), "p", metav1.DeleteOptions{}))
		must(t, b.kubelet.Forget(pod))
		b.restart(host.OS{})
		must(t, b.manager.Reconcile(context.Background()))
		for _, line := range strings.Split(b.files(), "\n") {
			if strings.Contains(line, "uid-p") || strings.HasPrefix(line, "cdi/") {
				t.Errorf("effect %d (late %v): left behind: %s", at/2, at%2 == 1, line)
			}
		}
	}
}

func TestReleaseLeavesNothingOfThePodAndAllOfOthers(t *testing.T) {
	b, pod := onePod(t)
	other := b.pod("other", ask{name: "main", devices: []int{0}, mib: 1000})
	must(t, b.kubelet.Admit(other))
	_, err := b.begin(other, "main")
	must(t, err)
	before := b.files()
	_, err = b.begin(pod, "main")
	must(t, err)
	b.remove(pod)
	if got := b.files(); got != before {
		t.Errorf("the host is\n%s\nwant\n%s", got, before)
	}
}

func TestAPodThatIsLiveIsNeverReleased(t *testing.T) {
	b, pod := onePod(t)
	_, err := b.begin(pod, "main")
	must(t, err)
	before := b.files()
	must(t, b.manager.Release(context.Background(), sharing.Owner(pod.UID)))
	must(t, b.manager.Reconcile(context.Background()))
	if got := b.files(); got != before {
		t.Errorf("the host is\n%s\nwant\n%s", got, before)
	}
}

func TestAPodThatEndedReleasesItsDevicesWhileItsObjectStays(t *testing.T) {
	b, pod := onePod(t)
	_, err := b.begin(pod, "main")
	must(t, err)
	done := pod.DeepCopy()
	done.Status.Phase = corev1.PodSucceeded
	_, err = b.api.CoreV1().Pods("default").UpdateStatus(context.Background(), done, metav1.UpdateOptions{})
	must(t, err)
	must(t, b.manager.Release(context.Background(), <-b.gone))
	if len(b.store.All()) != 0 {
		t.Error("the record stayed")
	}
}

func TestABrokenCheckpointIsKeptAsideAndRebuiltFromWhatRuns(t *testing.T) {
	b, pod := onePod(t)
	_, err := b.begin(pod, "main")
	must(t, err)
	want := b.store.All()
	path := filepath.Join(b.dir, "state", "checkpoint.json")
	must(t, os.WriteFile(path, []byte(`{"version":1,"checksum":"x","records":[]}`), 0o600))
	b.restart(host.OS{})
	if b.broken == nil || len(b.store.All()) != 0 {
		t.Fatalf("the broken checkpoint was taken for good: %v", b.broken)
	}
	must(t, b.manager.Reconcile(context.Background()))
	if got := b.store.All(); len(got) != 1 || got[0].ID != want[0].ID || got[0].Devices[0] != want[0].Devices[0] {
		t.Errorf("rebuilt %+v, want %+v", got, want)
	}
	if _, err := os.Stat(path + ".broken-1"); err != nil {
		t.Error(err)
	}
	env, err := b.begin(pod, "main")
	if err != nil || limit(env) != "2000m" {
		t.Errorf("the container restarts with %s, %v", limit(env), err)
	}
}

func TestSpecificationsOfNobodyAreSweptAndForeignFilesStay(t *testing.T) {
	b, pod := onePod(t)
	_, err := b.begin(pod, "main")
	must(t, err)
	stray, foreign := filepath.Join(b.dir, "cdi", "volcano.sh-vgpu-stray.json"), filepath.Join(b.dir, "cdi", "nvidia.yaml")
	must(t, os.WriteFile(stray, []byte("{}"), 0o600))
	must(t, os.WriteFile(foreign, []byte("{}"), 0o600))
	must(t, b.manager.Reconcile(context.Background()))
	if _, err := os.Stat(stray); !os.IsNotExist(err) {
		t.Error("the specification of nobody stayed")
	}
	if _, err := os.Stat(foreign); err != nil {
		t.Error("somebody else's file was removed")
	}
	if names, _ := os.ReadDir(filepath.Join(b.dir, "cdi")); len(names) != 3 {
		t.Errorf("%d files are left, want the pod's, the driver's and the foreign one", len(names))
	}
}

func TestTheKubeletMayRestart(t *testing.T) {
	b, pod := onePod(t)
	b.kubelet.Restart(t)
	b.kubelet.Await(t, "the device plugin to register again", func(_, _, registrations int) bool { return registrations == 2 })
	env, err := b.begin(pod, "main")
	if err != nil || limit(env) != "2000m" {
		t.Errorf("the container starts with %s, %v", limit(env), err)
	}
}

// A kubelet that starts anew refuses pods whose slots are not healthy, and their devices may work.
func TestTheKubeletCountsBrokenDevices(t *testing.T) {
	b, pod := onePod(t)
	for _, d := range b.inventory().Devices {
		b.breaks(d.ID, "XID 79")
	}
	b.kubelet.Restart(t)
	b.kubelet.Await(t, "the registration", func(_, _, registrations int) bool { return registrations == 2 })
	b.kubelet.Await(t, "all slots to be healthy", func(healthy, all, _ int) bool { return healthy == 80 && all == 80 })
	if _, err := b.begin(pod, "main"); err == nil || !strings.Contains(err.Error(), "is broken (XID 79)") {
		t.Errorf("a container starts on a broken device: %v", err)
	}
	for _, d := range b.inventory().Devices {
		b.breaks(d.ID, "")
	}
	if _, err := b.begin(pod, "main"); err != nil {
		t.Error(err)
	}
}
