// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/wire"
)

// The tests in this file are the defects that were reproduced in the device code
// of Volcano v1.14.1, by the numbers of the list in docs, as far as they show in
// sessions. Those of the decision itself are in sharing/place.

// migNode is a node with one device in mode mig that may be cut into two
// 3g.40gb, or into three 2g.20gb and a 1g.10gb.
func migNode(node string) sharing.Inventory {
	inv := devices(node, 1, 81920)
	inv.GeometryHash = "abc"
	d := &inv.Devices[0]
	d.Mode, d.MaxShares = sharing.MIG, 7
	d.MIG = &sharing.Partitioning{
		Slices: 8,
		Profiles: []sharing.Profile{
			{Name: "1g.10gb", Memory: 9728 * sharing.MiB, Compute: 1, Size: 1, Starts: []int{0, 1, 2, 3, 4, 5, 6}, Max: 7},
			{Name: "2g.20gb", Memory: 19968 * sharing.MiB, Compute: 2, Size: 2, Starts: []int{0, 2, 4}, Max: 3},
			{Name: "3g.40gb", Memory: 40192 * sharing.MiB, Compute: 3, Size: 4, Starts: []int{0, 4}, Max: 2},
		},
		Geometries: []sharing.Geometry{
			{Name: "halves", Entries: []sharing.GeometryEntry{{Profile: "3g.40gb", Memory: 40192 * sharing.MiB, Count: 2}}},
			{Name: "mixed", Entries: []sharing.GeometryEntry{
				{Profile: "2g.20gb", Memory: 19968 * sharing.MiB, Count: 3}, {Profile: "1g.10gb", Memory: 9728 * sharing.MiB, Count: 1},
			}},
		},
	}
	return inv
}

func TestDefect01_TwoPodsOfOneSessionGetDifferentPartitions(t *testing.T) {
	w := newWorld(t, nodeOf(t, migNode("n1")), groupOf("g", 2),
		podOf("a", "g", asks{number: 1, memory: 30000}), podOf("b", "g", asks{number: 1, memory: 30000}))
	w.schedule()
	w.bound("a")
	w.bound("b")
	a, b := w.placement("a").Containers[0].Shares[0].Partition, w.placement("b").Containers[0].Shares[0].Partition
	if a.IsZero() || b.IsZero() || a.Overlaps(b) {
		t.Errorf("partitions %+v and %+v", a, b)
	}
	if p := w.placement("a"); p.GeometryHash != "abc" {
		t.Errorf("geometry hash %q: the node could not tell that its geometries changed", p.GeometryHash)
	}
}

func TestDefect02_TwoContainersOfOnePodGetDifferentPartitionsAndARestartCountsBoth(t *testing.T) {
	w := newWorld(t, nodeOf(t, migNode("n1")), groupOf("g", 1),
		podOf("a", "g", asks{number: 1, memory: 30000}, asks{number: 1, memory: 30000}))
	w.schedule()
	w.bound("a")
	w.settled()
	w.restart()
	w.schedule()
	p, _ := w.store.cluster.Nodes()["n1"].Ledger.Placement("uid-a")
	if len(p.Containers) != 2 || p.Containers[0].Shares[0].Partition.Overlaps(p.Containers[1].Shares[0].Partition) {
		t.Errorf("after the restart the pod holds %+v", p)
	}
	if err := w.store.cluster.Nodes()["n1"].Ledger.Check(); err != nil {
		t.Error(err)
	}
}

func TestDefect03_04_05_AfterAPodEndsItsDeviceIsAsItWas(t *testing.T) {
	w := newWorld(t, nodeOf(t, migNode("n1")), groupOf("g", 1), podOf("a", "g", asks{number: 1, memory: 15000}))
	w.schedule()
	w.bound("a")
	w.settled()
	if v := w.store.cluster.Nodes()["n1"].Ledger.Views()[0]; v.UsedMemory() == 0 {
		t.Fatal("nothing was counted")
	}
	if err := w.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ns", "a"); err != nil {
		t.Fatal(err)
	}
	w.eventually("the pod is gone", func() bool {
		w.cache.Mutex.Lock()
		defer w.cache.Mutex.Unlock()
		return len(w.cache.Nodes["n1"].Tasks) == 0
	})
	w.schedule()
	if v := w.store.cluster.Nodes()["n1"].Ledger.Views()[0]; !v.Empty() || v.UsedMemory() != 0 {
		t.Errorf("%v still used", v.UsedMemory())
	}
	// The other geometry is open again.
	w.create(groupOf("h", 1), podOf("b", "h", asks{number: 1, memory: 40000}))
	w.schedule()
	w.bound("b")
	if p := w.placement("b").Containers[0].Shares[0].Partition; p.Profile != "3g.40gb" {
		t.Errorf("partition %+v", p)
	}
}

func TestDefect06_AnAllocateThatFailsLeavesNothing(t *testing.T) {
	inv := devices("n1", 2, 10000)
	w := newWorld(t, nodeOf(t, inv), groupOf("g", 1),
		podOf("p", "g", asks{number: 1, memory: 6000}, asks{number: 1, memory: 6000}, asks{number: 1, memory: 6000}))
	ssn := w.open()
	defer framework.CloseSession(ssn)
	task := w.task(ssn, "p")
	stmt := framework.NewStatement(ssn)
	if err := stmt.Allocate(task, ssn.Nodes["n1"]); err == nil {
		t.Fatal("three times 6000 MiB fit on two devices of 10000")
	}
	_ = stmt.UnAllocate(task)
	for _, v := range w.plugin.overlay.currentLedger(w.plugin.nodes["n1"]).Views() {
		if !v.Empty() {
			t.Errorf("device %s has %v used", v.Device.ID, v.UsedMemory())
		}
	}
}

func TestDefect07_APodIsCountedOnceWhenItsAnnotationsComeBack(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 4000, cores: 40}))
	for range 3 {
		w.schedule() // before, while and after the binding is under way
	}
	w.bound("p")
	w.settled()
	w.schedule()
	v := w.store.cluster.Nodes()["n1"].Ledger.Views()[0]
	if v.UsedMemory() != sharing.MiBs(4000) || v.UsedCores() != 40 || v.Sharers() != 1 {
		t.Errorf("%v, %d%%, %d shares used", v.UsedMemory(), v.UsedCores(), v.Sharers())
	}
}

func TestDefect08_ADiscardedGangGivesItsDevicesBackInTheSameSession(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 2, 1000)), groupOf("g", 2),
		podOf("a", "g", asks{number: 1, memory: 900}), podOf("b", "g", asks{number: 1, memory: 900}))
	ssn := w.open()
	defer framework.CloseSession(ssn)
	stmt := framework.NewStatement(ssn)
	for _, name := range []string{"a", "b"} {
		if err := stmt.Allocate(w.task(ssn, name), ssn.Nodes["n1"]); err != nil {
			t.Fatal(err)
		}
	}
	stmt.Discard()
	for _, v := range w.plugin.overlay.currentLedger(w.plugin.nodes["n1"]).Views() {
		if v.UsedMemory() != 0 {
			t.Errorf("device %s has %v used on an idle node", v.Device.ID, v.UsedMemory())
		}
	}
}

func TestDefect09_AnUnhealthyDeviceIsNotUsed(t *testing.T) {
	inv := devices("n1", 1, 10000)
	inv.Devices[0].Healthy = false
	n1 := infoOf(nodeOf(t, inv), nil)
	if err := try(bare(t, n1), n1); err == nil || !strings.Contains(err.Error(), "1 out of service (Unhealthy)") {
		t.Errorf("refused with %v", err)
	}
}

func TestDefect10_DeviceIndexesMayBeSparse(t *testing.T) {
	inv := devices("n1", 2, 10000)
	inv.Devices[0].Index, inv.Devices[1].Index = 3, 7
	n1 := infoOf(nodeOf(t, inv), nil)
	if err := try(bare(t, n1), n1); err != nil {
		t.Error(err)
	}
}

func TestDefect11_InitContainersAreGivenDevices(t *testing.T) {
	pod := podOf("p", "g", asks{number: 1, memory: 1000})
	pod.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{Limits: asks{number: 1, memory: 9000}.list()}}}
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), pod)
	w.schedule()
	w.bound("p")
	p := w.placement("p")
	if c, ok := p.Container("init"); !ok || c.Kind != sharing.Init || c.Shares[0].Memory != sharing.MiBs(9000) {
		t.Errorf("placement %+v", p)
	}
}

func TestDefect12_AContainerWithoutDevicesShiftsNoOther(t *testing.T) {
	pod := podOf("p", "g", asks{}, asks{number: 1, memory: 1000}, asks{}, asks{number: 1, memory: 2000})
	w := newWorld(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("g", 1), pod)
	w.schedule()
	b := w.bound("p")
	inv := devices("n1", 2, 10000)
	legacy := map[string]string{wire.PodAssigned: b.Annotations[wire.PodAssigned], wire.PodNode: "n1"}
	for name, annotations := range map[string]map[string]string{"complete": b.Annotations, "the legacy text alone": legacy} {
		p, found, err := wire.ReadPlacement(annotations, corepod.Refs(pod, podspec.DefaultNames()), &inv, 1)
		if err != nil || !found || len(p.Containers) != 2 {
			t.Fatalf("%s: %+v, %t, %v", name, p, found, err)
		}
		for container, memory := range map[string]int64{"c1": 1000, "c3": 2000} {
			if c, ok := p.Container(container); !ok || c.Shares[0].Memory != sharing.MiBs(memory) {
				t.Errorf("%s: container %s has %+v", name, container, c)
			}
		}
	}
}

func TestDefect13_EveryDeviceOfAMixedNodeKeepsItsOwnMode(t *testing.T) {
	inv := migNode("n1")
	inv.Devices = append(inv.Devices, devices("n1", 2, 10000).Devices[1])
	for mode, device := range map[sharing.Mode]sharing.DeviceID{sharing.MIG: "GPU-n1-0", sharing.HAMiCore: "GPU-n1-1"} {
		pod := podOf("p", "g", asks{number: 1, memory: 5000})
		pod.Annotations[wire.UserMode] = string(mode)
		w := newWorld(t, nodeOf(t, inv), groupOf("g", 1), pod)
		w.schedule()
		w.bound("p")
		if s := w.placement("p").Containers[0].Shares[0]; s.Device != device || s.Mode != mode {
			t.Errorf("mode %s gave %+v", mode, s)
		}
	}
}

func TestDefect14_AModeTheNodeLacksIsNoReasonToEvictAnybody(t *testing.T) {
	pod := podOf("p", "g", asks{number: 1, memory: 5000})
	pod.Annotations[wire.UserMode] = string(sharing.MIG)
	n1 := infoOf(nodeOf(t, devices("n1", 2, 10000)), nil)
	err := bare(t, n1).predicate(api.NewTaskInfo(pod), n1)
	fe, ok := err.(*api.FitError)
	if !ok || !fe.Status.ContainsUnschedulableAndUnresolvable() || !strings.Contains(err.Error(), "2 in a mode that the pod does not accept (WrongMode)") {
		t.Errorf("refused with %v", err)
	}
}

func TestDefect14_AFullDeviceIsAReasonToEvictAndATooSmallOneIsNot(t *testing.T) {
	node, pods := full(t, "n1")
	n1 := infoOf(node, pods)
	p := bare(t, n1)
	for memory, curable := range map[int64]bool{3000: true, 12000: false} {
		err := p.predicate(api.NewTaskInfo(podOf("p", "g", asks{number: 1, memory: memory})), n1)
		fe, ok := err.(*api.FitError)
		if !ok || fe.Status.ContainsUnschedulable() != curable || fe.Status.ContainsUnschedulableAndUnresolvable() == curable {
			t.Errorf("%d MiB on full devices of 10000: %v", memory, err)
		}
	}
}

func TestDefect15_NothingIsPlacedOnANodeBeforeItsPodsWereSeen(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 1, 1000)), nodeOf(t, devices("n2", 1, 1000)), groupOf("g", 1), podOf("new", "g", asks{number: 1, memory: 500}))
	// The informer has a pod that Volcano's cache has not worked off yet.
	late := runningOn(t, podOf("late", "g", asks{number: 1, memory: 900}), "n1", share("GPU-n1-0", 900))
	ssn := w.open()
	store := ssn.InformerFactory().Core().V1().Pods().Informer().GetStore()
	framework.CloseSession(ssn)
	if err := store.Add(late); err != nil {
		t.Fatal(err)
	}
	w.restart()
	ssn = w.open()
	fresh := w.task(ssn, "new")
	if err := ssn.PredicateFn(fresh, ssn.Nodes["n1"]); err == nil || !strings.Contains(err.Error(), "has just started") {
		t.Errorf("the node whose pods are missing says %v", err)
	} else if !err.(*api.FitError).Status.ContainsUnschedulableAndUnresolvable() {
		t.Error("evicting pods would not help")
	}
	if err := ssn.PredicateFn(fresh, ssn.Nodes["n2"]); err != nil {
		t.Errorf("the node without pods says %v", err)
	}
	framework.CloseSession(ssn)

	w.cache.AddPod(late)
	ssn = w.open()
	defer framework.CloseSession(ssn)
	if err := ssn.PredicateFn(fresh, ssn.Nodes["n1"]); err == nil || !strings.Contains(err.Error(), "NotEnoughMemory") {
		t.Errorf("with its pods seen, the node says %v", err)
	}
}

func TestDefect15_APodThatEndedBeforeItWasSeenIsNotWaitedFor(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 1, 1000)), groupOf("g", 1), podOf("new", "g", asks{number: 1, memory: 500}))
	late := runningOn(t, podOf("late", "g", asks{number: 1, memory: 900}), "n1", share("GPU-n1-0", 900))
	ssn := w.open()
	store := ssn.InformerFactory().Core().V1().Pods().Informer().GetStore()
	framework.CloseSession(ssn)
	_ = store.Add(late)
	w.restart()
	framework.CloseSession(w.open())
	_ = store.Delete(late)
	ssn = w.open()
	defer framework.CloseSession(ssn)
	if err := ssn.PredicateFn(w.task(ssn, "new"), ssn.Nodes["n1"]); err != nil {
		t.Error(err)
	}
}

func TestDefect16_ManyGoroutinesMayAskAboutOneNode(t *testing.T) {
	node, pods := full(t, "n1")
	now := metav1.Now()
	pods[0].DeletionTimestamp = &now // one is leaving, so the future is asked for too
	n1 := infoOf(node, pods)
	p := bare(t, n1)
	var wait sync.WaitGroup
	answers := make([]string, 16)
	for i := range answers {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for _, a := range []asks{{number: 1, memory: 2000}, {number: 1, memory: 4000}, {number: 30, memory: 1}} {
				task := api.NewTaskInfo(podOf("p", "g", a))
				score, _ := p.nodeOrder(task, n1)
				answers[i] += fmt.Sprint(p.predicate(task, n1), score)
			}
		}()
	}
	wait.Wait()
	for _, a := range answers {
		if a != answers[0] {
			t.Errorf("answers %q and %q", answers[0], a)
		}
	}
}

func TestDefect17_AScoreDependsOnItsArgumentsOnly(t *testing.T) {
	node, pods := full(t, "n1")
	n1, n2 := infoOf(node, pods), infoOf(nodeOf(t, devices("n2", 8, 10000)), nil)
	p := bare(t, n1, n2)
	small, large := api.NewTaskInfo(podOf("s", "g", asks{number: 1, memory: 100})), api.NewTaskInfo(podOf("l", "g", asks{number: 4, memory: 2000}))
	first, _ := p.nodeOrder(small, n1)
	_ = p.predicate(large, n1)
	_, _ = p.nodeOrder(large, n2)
	if again, _ := p.nodeOrder(small, n1); again != first {
		t.Errorf("score %v, and %v after another pod was scored", first, again)
	}
}

func TestDefect20_AWholeSessionCallsTheAPIServerOnlyToBind(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("g", 1), groupOf("big", 3), podOf("p", "g", asks{number: 1, memory: 100}),
		podOf("a", "big", asks{number: 1}), podOf("b", "big", asks{number: 1}), podOf("c", "big", asks{number: 1}))
	w.client.ClearActions()
	w.schedule()
	w.bound("p")
	for _, a := range w.client.Actions() {
		if !a.Matches("create", "pods/binding") {
			t.Errorf("%s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
}
