// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const placement = `{"version":1,"node":"real-0","containers":[
 {"name":"first","kind":"init","shares":[{"uuid":"GPU-a","mode":"hami-core","memory":1048576,"cores":30}]},
 {"name":"main","kind":"app","shares":[{"uuid":"GPU-b","mode":"mig","memory":5,"cores":14,
  "partition":{"profile":"1g.10gb","start":2,"size":1,"geometry":"free","position":3}}]}]}`

func TestAPodIsReadFromItsAnnotationAndStatus(t *testing.T) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x", UID: "u", Annotations: map[string]string{placementKey: placement}},
		Spec:       corev1.PodSpec{NodeName: "real-0"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodInitialized, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "main", ContainerID: "containerd://now",
				LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ContainerID: "containerd://before"}}}}},
	}
	got, ok, err := readPod(p)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	want := Pod{UID: "u", Name: "ns/x", Holds: true, Initialized: true, Containers: []Container{
		{Name: "first", Kind: Init, Shares: []Share{{Device: "GPU-a", Mode: "hami-core", Memory: 1 << 20, Cores: 30}}},
		{Name: "main", Kind: App, IDs: []string{"now", "before"},
			Shares: []Share{{Device: "GPU-b", Mode: "mig", Memory: 5, Cores: 14, Profile: "1g.10gb", Start: 2, Size: 1}}}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	p.Status.Phase = corev1.PodFailed
	if got, _, _ := readPod(p); got.Holds {
		t.Error("a pod that has failed holds nothing")
	}
	delete(p.Annotations, placementKey)
	if _, ok, err := readPod(p); ok || err != nil {
		t.Error("a pod without a placement was given nothing", ok, err)
	}
}

func TestAnIDThatWasSeenBeforeIsKept(t *testing.T) {
	before := Pod{Containers: []Container{{Name: "main", IDs: []string{"a", "b"}}}}
	got := Pod{Containers: []Container{{Name: "main", IDs: []string{"c", "b"}}}}.knowing(before)
	if diff := cmp.Diff([]string{"a", "b", "c"}, got.Containers[0].IDs); diff != "" {
		t.Error(diff)
	}
}

func TestOffersAreReadFromTheNode(t *testing.T) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		inventoryKey: `{"version":1,"devices":[{"uuid":"GPU-a","index":0,"memory":7,"cores":100,"maxShares":10,"healthy":true}]}`}}}
	got, err := readOffers(n)
	if diff := cmp.Diff(map[string]Offer{"GPU-a": {Memory: 7, Cores: 100, Shares: 10}}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	n.Annotations[inventoryKey] = "{"
	if _, err := readOffers(n); err == nil {
		t.Error("a text that is cut off was read")
	}
}

const show = `driver=580.95.05 cuda=13.0 devices=2
device index=0 uuid=GPU-a model="A" total_mib=100 used_mib=30
  process pid=7 own_pid=1 name=x used_mib=20 busy_ms=0
  process pid=8 own_pid=1 name=x used_mib=10 busy_ms=0
device index=1 uuid=GPU-b model="A" total_mib=100 used_mib=5
  slices |1g.10gb |.       |
  instance gi=9 ci=0 profile=1g.10gb start=2 size=1 uuid=MIG-1 total_mib=9728 used_mib=5
    process pid=9 own_pid=1 name=x used_mib=5 busy_ms=0
  instance gi=3 ci=none start=4 size=1
`

func TestTheMachineIsReadFromWhatTheDriverShows(t *testing.T) {
	owners := map[int]owner{7: {"p", "c"}, 9: {"q", "d"}}
	got, err := readMachine(show, owners)
	if err != nil {
		t.Fatal(err)
	}
	want := machine{
		processes: []Process{
			{PID: 7, Pod: "p", Container: "c", Device: "GPU-a", Memory: 20 << 20},
			{PID: 9, Pod: "q", Container: "d", Device: "GPU-b", Profile: "1g.10gb", Start: 2, Memory: 5 << 20},
		},
		// The one of 4 has no compute instance: nobody can use it.
		partitions: []Partition{{Device: "GPU-b", Profile: "1g.10gb", Start: 2}},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(machine{})); diff != "" {
		t.Error(diff)
	}
	if _, err := readMachine("device uuid=GPU-a\n  process pid=x used_mib=1\n", owners); err == nil {
		t.Error("a line without a process number was read")
	}
}

func TestAProcessBelongsToTheContainerOfItsCgroup(t *testing.T) {
	const uid, id = "0fc3eda5-1111-2222-3333-444455556666", "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	path := "/deviceshare-01234567/kubepods/besteffort/pod" + uid + "/" + id
	got, ok := ownerOf([]procfs.Cgroup{{Path: "/"}, {Path: path}}, "/deviceshare-01234567")
	if want := (owner{uid, id}); !ok || got != want {
		t.Errorf("got %v %v", got, ok)
	}
	if _, ok := ownerOf([]procfs.Cgroup{{Path: path}}, "/deviceshare-0123456"); ok {
		t.Error("a process of another cluster was taken")
	}
	if _, ok := ownerOf([]procfs.Cgroup{{Path: "/user.slice"}}, "/deviceshare-01234567"); ok {
		t.Error("a process of no pod was taken")
	}
}

const ledgerText = `{"version":1,"nodes":{"real-0":{"owners":{"u":{"assumed":true,"shares":[
 {"container":"main","device":"GPU-b","mode":"mig","memoryBytes":5,"coresPercent":14,"profile":"1g.10gb","start":2},
 {"container":"first","device":"GPU-a","mode":"hami-core","memoryBytes":7,"whole":true}]},"v":{"shares":[]}},
 "blocked":[],"problems":[]}}}`

func TestTheLedgerIsReadFromTheSchedulersAnswer(t *testing.T) {
	got, err := readLedger([]byte(ledgerText), "real-0")
	want := Ledger{"v": {}, "u": {
		holding("first", Share{Device: "GPU-a", Mode: "hami-core", Memory: 7, Whole: true}),
		holding("main", Share{Device: "GPU-b", Mode: "mig", Memory: 5, Cores: 14, Profile: "1g.10gb", Start: 2})}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for _, wrong := range []string{"", "{", strings.Replace(ledgerText, `"blocked":[]`, `"blocked":["u"]`, 1)} {
		if _, err := readLedger([]byte(wrong), "real-0"); err == nil {
			t.Errorf("%.60q was read", wrong)
		}
	}
}

// A container is alive if it had a process that works both times, whichever that was.
func TestWhoIsAlive(t *testing.T) {
	in := func(container, program string) member {
		return member{owner: owner{container: container}, program: program}
	}
	got := alive(
		[]member{in("stays", "sh"), in("ends", "sh"), in("dying", "."), in("mixed", "."), in("mixed", "sh")},
		[]member{in("stays", "client"), in("starts", "sh"), in("dying", "."), in("mixed", "sh"), in("ending", ".")})
	if diff := cmp.Diff(map[string]bool{"stays": true, "mixed": true}, got); diff != "" {
		t.Error(diff)
	}
}
