// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

func TestAPodIsBoundWithItsPlacementOnTheBinding(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 3000, cores: 30}))
	w.schedule()
	b := w.bound("p")
	if b.Target.Name != "n1" {
		t.Errorf("bound to %q", b.Target.Name)
	}
	p := w.placement("p")
	c, ok := p.Container("c0")
	if !ok || len(c.Shares) != 1 || c.Shares[0].Memory != sharing.MiBs(3000) || c.Shares[0].Cores != 30 || p.Node != "n1" {
		t.Errorf("placement %+v", p)
	}
	for key, want := range wire.Receipt() {
		if got, ok := b.Annotations[key]; !ok || got != want {
			t.Errorf("annotation %s is %q, want %q: the legacy device plugin would take the pod for one that waits", key, got, want)
		}
	}
}

func TestAPodOfANodeWithTheLegacyDevicePluginIsBoundWithAllThatItReads(t *testing.T) {
	node := nodeOf(t, devices("n1", 1, 10000))
	delete(node.Annotations, wire.NodeInventory)
	w := newWorld(t, node, groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 3000, cores: 30}))
	w.schedule()
	b := w.bound("p")
	for _, key := range []string{wire.PodNode, wire.PodTime, wire.PodAssigned, wire.PodToAllocate, wire.PodBindPhase, wire.PodBindTime} {
		if b.Annotations[key] == "" {
			t.Errorf("annotation %s is missing", key)
		}
	}
	if b.Annotations[wire.PodToAllocate] != b.Annotations[wire.PodAssigned] || b.Annotations[wire.PodBindPhase] != wire.PhaseAllocating {
		t.Errorf("it says that nothing is left to allocate: %v", b.Annotations)
	}
}

func TestARefusalTellsThePodWhatItsDevicesLack(t *testing.T) {
	inv := devices("n1", 3, 10000)
	inv.Devices[2].Healthy = false
	w := newWorld(t, nodeOf(t, inv), groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 12000}))
	w.schedule()
	got := w.status.message("p")
	for _, want := range []string{"0/3 devices fit", "2 short of free memory (NotEnoughMemory)", "1 out of service (Unhealthy)"} {
		if !strings.Contains(got, want) {
			t.Errorf("the pod was told %q, want it to say %q", got, want)
		}
	}
}

func TestAPodWithoutVgpuNumberIsToldWhatToWrite(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), podOf("p", "g", asks{memory: 3000}, asks{cores: 20}))
	w.schedule()
	got := w.status.message("p")
	for _, want := range []string{wire.ResourceNumber + ": 1", "spec.containers[0]", "spec.containers[1]"} {
		if !strings.Contains(got, want) {
			t.Errorf("the pod was told %q, want it to say %q", got, want)
		}
	}
	if _, ok := w.binding("p"); ok {
		t.Error("it was bound: the kubelet would start it with no device or with all of them")
	}
}

func TestAPodThatAsksForNothingIsBoundWithoutAnnotations(t *testing.T) {
	pod := podOf("p", "g", asks{})
	pod.Annotations[wire.PodAssigned] = "left by an earlier attempt"
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), pod)
	w.schedule()
	if b := w.bound("p"); len(b.Annotations) != 0 {
		t.Errorf("annotations %v", b.Annotations)
	}
}

func TestAGangIsPlacedTogether(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 2, 10000)), nodeOf(t, devices("n2", 2, 10000)), groupOf("g", 3),
		podOf("a", "g", asks{number: 1}), podOf("b", "g", asks{number: 1}), podOf("c", "g", asks{number: 1}))
	w.schedule()
	seen := map[sharing.DeviceID]string{}
	for _, name := range []string{"a", "b", "c"} {
		w.bound(name)
		p := w.placement(name)
		s := p.Containers[0].Shares[0]
		if other, ok := seen[s.Device]; ok {
			t.Errorf("pods %s and %s both have device %s whole", name, other, s.Device)
		}
		seen[s.Device] = name
	}
}

func TestADiscardedGangLeavesNothing(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("big", 3),
		podOf("a", "big", asks{number: 1}), podOf("b", "big", asks{number: 1}), podOf("c", "big", asks{number: 1}))
	w.schedule()
	if n := len(w.client.Actions()); w.bindCalls() != 0 {
		t.Fatalf("%d calls to the API server, %d of them Bindings", n, w.bindCalls())
	}
	if got := w.store.cluster.Pods().Decisions(); got != 0 {
		t.Errorf("%d placements are still assumed", got)
	}
	w.create(groupOf("small", 2), podOf("d", "small", asks{number: 1}), podOf("e", "small", asks{number: 1}))
	w.schedule()
	w.bound("d")
	w.bound("e")
}

func TestTheNextSessionCountsPodsWhoseAnnotationsAreNotBackYet(t *testing.T) {
	// Sums have room for both, devices have not: 6000 MiB are free on one, 3000 on
	// the other.
	other := runningOn(t, podOf("other", "h", asks{number: 1, memory: 4000}), "n1", share("GPU-n1-1", 4000))
	w := newWorld(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("g", 1), groupOf("h", 1), other, podOf("a", "g", asks{number: 1, memory: 7000}))
	release := w.hold("a")
	w.schedule()
	w.create(podOf("b", "h", asks{number: 1, memory: 7000}))
	w.schedule()
	if _, ok := w.binding("b"); ok {
		t.Error("the second pod was given memory of the first, whose bind is under way")
	}
	release()
	w.settled()
	if msg := w.status.message("b"); !strings.Contains(msg, "NotEnoughMemory") {
		t.Errorf("the second pod was told %q", msg)
	}
}

func TestAPodWaitsForDevicesOfAPodThatIsLeaving(t *testing.T) {
	leaving := runningOn(t, podOf("old", "g", asks{number: 1, memory: 8000}), "n1", share("GPU-n1-0", 8000))
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), groupOf("h", 1), leaving, podOf("new", "h", asks{number: 1, memory: 8000}))
	ssn := w.open()
	defer framework.CloseSession(ssn)
	old, fresh, n1 := w.task(ssn, "old"), w.task(ssn, "new"), ssn.Nodes["n1"]

	if err := ssn.PrePredicateFn(fresh); err != nil {
		t.Fatal(err)
	}
	if err := ssn.PredicateFn(fresh, n1); err == nil {
		t.Error("fits although the device is full")
	}
	stmt := framework.NewStatement(ssn)
	if err := stmt.Evict(old, "test"); err != nil {
		t.Fatal(err)
	}
	if err := ssn.PredicateFn(fresh, n1); err != nil {
		t.Errorf("does not fit the room that will be free: %v", err)
	}
	if err := stmt.Pipeline(fresh, "n1", true); err != nil {
		t.Errorf("pipeline: %v", err)
	}
	if r := w.plugin.overlay.placed["uid-new"]; r.node != "n1" {
		t.Errorf("promised %+v", r)
	}
	stmt.Discard()
	if err := ssn.PredicateFn(fresh, n1); err == nil {
		t.Error("fits after the eviction was undone")
	}
	if len(w.plugin.overlay.placed) != 0 {
		t.Errorf("the session still holds %v", w.plugin.overlay.placed)
	}
}

func TestWhatIsAllocatedNowMustBeFreeNow(t *testing.T) {
	// Sums say the node has room now: device 1 is free. The devices say there is
	// none for a pod of 8000 MiB before the leaving pod is gone.
	leaving := runningOn(t, podOf("old", "g", asks{number: 1, memory: 8000}), "n1", share("GPU-n1-0", 8000))
	other := runningOn(t, podOf("other", "g", asks{number: 1, memory: 3000}), "n1", share("GPU-n1-1", 3000))
	w := newWorld(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("g", 1), groupOf("h", 1), leaving, other, podOf("new", "h", asks{number: 1, memory: 8000}))
	ssn := w.open()
	defer framework.CloseSession(ssn)
	fresh, n1 := w.task(ssn, "new"), ssn.Nodes["n1"]
	stmt := framework.NewStatement(ssn)
	if err := stmt.Evict(w.task(ssn, "old"), "test"); err != nil {
		t.Fatal(err)
	}
	if !judgedNow(fresh, n1) {
		t.Fatal("the test is about a node whose sums have room")
	}
	if err := ssn.PredicateFn(fresh, n1); err == nil {
		t.Error("Volcano would bind the pod to a device that is still held")
	}
	stmt.Discard()
}

func TestAFailedAllocateLeavesNothing(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 6000}, asks{number: 1, memory: 6000}))
	ssn := w.open()
	defer framework.CloseSession(ssn)
	task := w.task(ssn, "p")
	stmt := framework.NewStatement(ssn)
	if err := stmt.Allocate(task, ssn.Nodes["n1"]); err == nil {
		t.Fatal("12000 MiB fit on 10000")
	}
	if err := stmt.UnAllocate(task); err != nil {
		t.Fatal(err)
	}
	l := w.plugin.overlay.currentLedger(w.plugin.nodes["n1"])
	if l.Len() != 0 || l.Views()[0].UsedMemory() != 0 {
		t.Errorf("%d owners, %v used", l.Len(), l.Views()[0].UsedMemory())
	}
}

func TestADryRunWithClonedTasksIsRecovered(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 1, 10000)), groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 6000}))
	ssn := w.open()
	dry := framework.NewStatement(ssn)
	if err := dry.Allocate(w.task(ssn, "p"), ssn.Nodes["n1"]); err != nil {
		t.Fatal(err)
	}
	saved := framework.SaveOperations(dry)
	dry.Discard()
	if len(w.plugin.overlay.placed) != 0 {
		t.Fatalf("the dry run left %v", w.plugin.overlay.placed)
	}
	real := framework.NewStatement(ssn)
	if err := real.RecoverOperations(saved); err != nil {
		t.Fatal(err)
	}
	real.Commit()
	framework.CloseSession(ssn)
	w.bound("p")
	if p := w.placement("p"); p.Containers[0].Shares[0].Memory != sharing.MiBs(6000) {
		t.Errorf("placement %+v", p)
	}
}

func TestEqualNodesAreTakenInTheOrderOfTheirNames(t *testing.T) {
	var infos []*api.NodeInfo
	for _, name := range []string{"n3", "n1", "n2"} {
		infos = append(infos, infoOf(nodeOf(t, devices(name, 1, 10000)), nil))
	}
	p := bare(t, infos...)
	task := api.NewTaskInfo(podOf("p", "g", asks{number: 1, memory: 1000}))
	scores := map[string]float64{}
	for _, info := range infos {
		s, err := p.nodeOrder(task, info)
		if err != nil {
			t.Fatal(err)
		}
		scores[info.Name] = s
	}
	if scores["n1"] <= scores["n2"] || scores["n2"] <= scores["n3"] {
		t.Errorf("scores %v: Volcano draws lots among equals", scores)
	}
	if scores["n1"]-scores["n3"] >= 1 {
		t.Errorf("scores %v: the order of names outweighs a point of the policy", scores)
	}
}

func TestPodsOfAGroupThatWantsItGoToDifferentDevices(t *testing.T) {
	for name, c := range map[string]struct {
		spread  bool
		devices int
	}{
		"spread": {spread: true, devices: 2},
		"packed": {devices: 1},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := podOf("a", "g", asks{number: 1, memory: 100}), podOf("b", "g", asks{number: 1, memory: 100})
			if c.spread {
				a.Annotations[wire.UserGroupPolicy], b.Annotations[wire.UserGroupPolicy] = "spread", "spread"
			}
			w := newWorld(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("g", 2), a, b)
			w.schedule()
			w.bound("a")
			w.bound("b")
			used := map[sharing.DeviceID]bool{}
			for _, pod := range []string{"a", "b"} {
				p := w.placement(pod)
				used[p.Containers[0].Shares[0].Device] = true
			}
			if len(used) != c.devices {
				t.Errorf("%d devices used, want %d", len(used), c.devices)
			}
		})
	}
}

func TestAPodMayNameItsOwnPolicy(t *testing.T) {
	for policy, want := range map[string]sharing.DeviceID{"binpack": "GPU-n1-1", "spread": "GPU-n1-0"} {
		busy := runningOn(t, podOf("busy", "g", asks{number: 1, memory: 5000}), "n1", share("GPU-n1-1", 5000))
		pod := podOf("p", "g", asks{number: 1, memory: 100})
		pod.Annotations[wire.UserPolicy] = policy
		w := newWorld(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("g", 1), busy, pod)
		w.schedule()
		w.bound("p")
		if p := w.placement("p"); p.Containers[0].Shares[0].Device != want {
			t.Errorf("policy %s took %s, want %s", policy, p.Containers[0].Shares[0].Device, want)
		}
	}
}

// The devices of a gang's pods on one node are linked to each other where that is possible.
func TestPodsOfAGangAreNearEachOther(t *testing.T) {
	inv := devices("n1", 4, 10000)
	for i, peer := range []int{3, 2, 1, 0} { // the first is linked to the last, the second to the third
		inv.Devices[i].Links = []sharing.Link{{Peer: inv.Devices[peer].ID, Kind: "nvlink", Count: 2}}
	}
	whole := asks{number: 1, memory: 10000}
	w := newWorld(t, nodeOf(t, inv), groupOf("g", 2), podOf("a", "g", whole), podOf("b", "g", whole),
		groupOf("h", 1), podOf("c", "h", whole))
	w.schedule()
	used := map[string]sharing.DeviceID{}
	for _, pod := range []string{"a", "b"} {
		w.bound(pod)
		p := w.placement(pod)
		used[pod] = p.Containers[0].Shares[0].Device
	}
	d, _ := inv.Device(used["a"])
	if used["a"] == "" || d.Links[0].Peer != used["b"] {
		t.Errorf("the gang has %v, want two devices that are linked", used)
	}
}

// Volcano 1.15's rule: pods with all its labels never share a device with each other, whoever came
// first, and those that are there already count. Other pods share as ever.
func TestPodsThatMatchAnExclusiveRuleGoToDifferentDevices(t *testing.T) {
	labelled := func(pod *corev1.Pod, app string) *corev1.Pod {
		pod.Labels = map[string]string{"app": app}
		return pod
	}
	there := labelled(runningOn(t, podOf("there", "g", asks{number: 1, memory: 100}), "n1", share("GPU-n1-0", 100)), "llm")
	a, b := labelled(podOf("a", "g", asks{number: 1, memory: 100}), "llm"), labelled(podOf("b", "g", asks{number: 1, memory: 100}), "llm")
	other := labelled(podOf("other", "g", asks{number: 1, memory: 100}), "web")
	w := newWorld(t, nodeOf(t, devices("n1", 2, 10000)), groupOf("g", 1), there, a, b, other)
	w.args = framework.Arguments{"deviceshare.GPUExclusiveRules": []any{map[any]any{"app": "llm"}, map[any]any{"app": "llm", "tier": "gold"}}}
	w.schedule()
	w.bound("other")
	w.eventually("one of the two is bound", func() bool { // by another goroutine than the other one
		_, a := w.binding("a")
		_, b := w.binding("b")
		return a || b
	})
	placed := 0
	for _, pod := range []string{"a", "b"} {
		if _, ok := w.binding(pod); ok {
			w.bound(pod)
			p := w.placement(pod)
			if p.Containers[0].Shares[0].Device != "GPU-n1-1" {
				t.Errorf("pod %s shares the device of another pod of the rule: %+v", pod, p.Containers)
			}
			placed++
		}
	}
	if placed != 1 {
		t.Errorf("%d pods of the rule are placed beside one that runs, on 2 devices", placed)
	}
}
