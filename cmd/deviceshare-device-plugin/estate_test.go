// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/noderesources"

	"deviceshare/config"
	"deviceshare/deviceplugin/driver/drivertest"
	"deviceshare/deviceplugin/modes/modestest"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// rounds is how many rounds a test takes: a part of all, and a fifth of that with -short, unless a
// variable says how many.
func rounds(t *testing.T, variable string, part int) int {
	t.Helper()
	text := os.Getenv(variable)
	switch {
	case text == "" && testing.Short():
		return part / 5
	case text == "":
		return part
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", variable, err)
	}
	return n
}

// tenant is a pod of these tests, as its author knows it.
type tenant struct {
	pod  *corev1.Pod
	down bool // the runtime does not show its containers as running
	// device and what the pod has of it.
	device     sharing.DeviceID
	mib, cores int64
	written    int64 // the memory that its spec says
	partition  bool
}

// total is the memory of all containers together.
func (x *tenant) total() int64 { return x.mib * int64(1+len(x.pod.Spec.InitContainers)) }

// estate is a node full of pods, with what its administrator wants of it.
type estate struct {
	*program
	r       *rand.Rand
	tenants []*tenant
	count   int // of pods and edits that were ever made

	split         int
	memory, cores float64
	unit          int64
	hidden        map[sharing.DeviceID]bool
	modes         map[sharing.DeviceID]sharing.Mode
	cards         []node.Facts
	lost          map[int]bool
}

// settle starts a node with cards of which each mode has its part.
func settle(t *testing.T, r *rand.Rand, cards int) *estate {
	e := &estate{
		r: r, split: 10, memory: 1, cores: 1, unit: 1,
		hidden: map[sharing.DeviceID]bool{}, modes: map[sharing.DeviceID]sharing.Mode{}, lost: map[int]bool{},
	}
	for i := range cards {
		e.cards = append(e.cards, drivertest.A100(i))
		e.modes[e.cards[i].UUID] = sharing.Modes()[i%len(sharing.Modes())]
	}
	e.program = launch(t, func(p *program) {
		e.program = p
		p.driver = drivertest.New(e.cards...)
		for i := range cards {
			if err := os.WriteFile(filepath.Join(p.dir, "dev", fmt.Sprintf("nvidia%d", i)), modestest.Library(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		e.write()
	})
	e.kubelet.Await(t, "ten slots of each card", func(healthy, _, _ int) bool { return healthy == 10*cards })
	e.await("the inventory", func() bool { return len(e.inventory().Devices) == cards })
	return e
}

// write writes both ConfigMaps and returns when both are in force.
func (e *estate) write() {
	e.count++
	var hidden, rules []string
	for i := range e.cards {
		id := e.cards[i].UUID
		if e.hidden[id] {
			hidden = append(hidden, fmt.Sprintf("%q", id))
		}
		rules = append(rules, fmt.Sprintf(`{"uuid":%q,"mode":%q}`, id, e.modes[id]))
	}
	before := ""
	if e.plugin != nil {
		before = e.node().Annotations[wire.NodeConfig]
	}
	device := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: config.DeviceName, ResourceVersion: fmt.Sprint(e.count)},
		Data: map[string]string{config.DeviceKey: fmt.Sprintf("nvidia: {gpuMemoryFactor: %d, deviceMemoryScaling: %g, deviceCoreScaling: %g}",
			e.unit, e.memory, e.cores)},
	}
	api := e.api.CoreV1().ConfigMaps("kube-system")
	if _, err := api.Update(context.Background(), device, metav1.UpdateOptions{}); err != nil {
		if _, err := api.Create(context.Background(), device, metav1.CreateOptions{}); err != nil {
			e.t.Fatal(err)
		}
	}
	e.configure(fmt.Sprintf(`{"nodeconfig":[{"name":"other-%d"},{"name":"n","devicesplitcount":%d,"filterdevices":{"uuid":[%s]},"devices":[%s]}]}`,
		e.count, e.split, strings.Join(hidden, ","), strings.Join(rules, ",")))
	if e.plugin == nil {
		return
	}
	e.await("both ConfigMaps in force", func() bool {
		c := e.plugin.settings.Device()
		now := e.node().Annotations[wire.NodeConfig]
		return c.MemoryFactor == e.unit && c.MemoryScaling == e.memory && c.CoreScaling == e.cores && now != before
	})
}

// used is what pods have of a device.
func (e *estate) used(id sharing.DeviceID) (shares int, mib, cores int64) {
	for _, x := range e.tenants {
		if x.device == id {
			shares, mib, cores = shares+1, mib+x.mib, cores+x.cores
		}
	}
	return shares, mib, cores
}

// fill places pods on a card as a scheduler would, until it has this many.
func (e *estate) fill(card, most int) {
	id, mode := e.cards[card].UUID, e.modes[e.cards[card].UUID]
	for {
		shares, mib, cores := e.used(id)
		if shares >= most {
			return
		}
		x := &tenant{device: id, mib: (1 + e.r.Int64N(7)) * 1000, cores: e.r.Int64N(10), down: e.r.IntN(5) == 0}
		share := sharing.Share{Device: id, Mode: mode, Memory: sharing.MiBs(x.mib), Cores: sharing.Percent(x.cores)}
		x.written = x.mib
		if mode == sharing.MIG {
			if shares >= 7 {
				return
			}
			x.partition, x.mib = true, 9728
			share.Memory, share.Partition = sharing.MiBs(x.mib), sharing.Partition{Profile: "1g.10gb", Start: shares, Size: 1}
		} else if mib+x.mib > 81920 || cores+x.cores > 100 {
			return
		}
		e.move(x, share)
	}
}

// move makes a pod that runs with a share.
func (e *estate) move(x *tenant, share sharing.Share) {
	e.count++
	name := fmt.Sprintf("p%d", e.count)
	amounts := corev1.ResourceList{wire.ResourceNumber: resource.MustParse("1"), wire.ResourceMemory: *resource.NewQuantity(x.written, resource.DecimalSI)}
	if x.cores > 0 {
		amounts[wire.ResourceCores] = *resource.NewQuantity(x.cores, resource.DecimalSI)
	}
	x.pod = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(time.Unix(int64(e.count), 0)),
		},
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Limits: amounts, Requests: amounts},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		}}},
	}
	given := []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{share}}}
	if e.r.IntN(3) == 0 && !x.partition { // an init container came first, whose slot the other one has now
		init := x.pod.Spec.Containers[0]
		init.Name = "init"
		x.pod.Spec.InitContainers = []corev1.Container{init}
		given = append([]sharing.ContainerShares{{Container: "init", Kind: sharing.Init, Shares: []sharing.Share{share}}}, given...)
	}
	var err error
	x.pod.Annotations, err = wire.PlacementAnnotations(sharing.Placement{Node: "n", Containers: given}, 1, 1)
	if err != nil {
		e.t.Fatal(err)
	}
	if _, err := e.api.CoreV1().Pods("ns").Create(context.Background(), x.pod, metav1.CreateOptions{}); err != nil {
		e.t.Fatal(err)
	}
	if err := e.kubelet.Admit(x.pod); err != nil {
		e.t.Fatal(err)
	}
	e.tenants = append(e.tenants, x)
}

// leave ends one pod.
func (e *estate) leave(i int) {
	pod := e.tenants[i].pod
	if err := e.api.CoreV1().Pods("ns").Delete(context.Background(), pod.Name, metav1.DeleteOptions{}); err != nil {
		e.t.Fatal(err)
	}
	if err := e.kubelet.Forget(pod); err != nil {
		e.t.Fatal(err)
	}
	e.tenants = slices.Delete(e.tenants, i, i+1)
	// For as long as the plugin counts the pod, others may be told nothing new by the next edit.
	e.await("the plugin's notice of the end of "+pod.Name, func() bool {
		_, lives := e.plugin.pods.Pod(sharing.Owner(pod.UID))
		return !lives
	})
	e.plugin.holdings.Look(context.Background())
}

// restartKubelet returns when the plugin has registered again.
func (e *estate) restartKubelet() {
	seen := 0
	e.kubelet.Await(e.t, "nothing", func(_, _, n int) bool { seen = n; return true })
	e.kubelet.Restart(e.t)
	e.kubelet.Await(e.t, "the slots again", func(healthy, _, n int) bool { return n > seen && healthy > 0 })
}

// reboot is a machine that is off, and on again. change is what happens meanwhile.
func (e *estate) reboot(change func()) {
	e.end()
	e.plugin = nil
	change()
	seen := 0
	e.kubelet.Await(e.t, "nothing", func(_, _, n int) bool { seen = n; return true })
	e.kubelet.Restart(e.t)
	e.start()
	e.kubelet.Await(e.t, "the slots after the reboot", func(healthy, _, n int) bool { return n > seen && healthy > 0 })
}

// readmit has a kubelet that has started look at its pods, the oldest first, and returns how it
// fails them. The look at amounts is the code that the kubelet uses (AdmissionCheck).
func (e *estate) readmit(rebooted bool) []string {
	healthy := 0
	for _, is := range e.kubelet.Health() {
		if is {
			healthy++
		}
	}
	object := e.node()
	object.Status.Allocatable = object.Status.Capacity.DeepCopy()
	if object.Status.Allocatable == nil {
		object.Status.Allocatable = corev1.ResourceList{}
	}
	object.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("1000")
	// The device manager raises what is allocatable to what it has given away.
	object.Status.Allocatable[wire.ResourceNumber] = *resource.NewQuantity(int64(max(healthy, e.kubelet.Holds())), resource.DecimalSI)
	admitted := framework.NewNodeInfo()
	admitted.SetNode(object)
	var failed []string
	for _, x := range e.tenants {
		runs := func(container string) bool { return container == "main" && !rebooted && !x.down }
		if err := e.kubelet.Readmit(x.pod, runs); err != nil {
			failed = append(failed, x.pod.Name+": "+err.Error())
			continue
		}
		if lacks := noderesources.Fits(x.pod, admitted, noderesources.ResourceRequestsOptions{}); len(lacks) > 0 {
			failed = append(failed, fmt.Sprintf("%s: OutOf%s, requested %d, used %d, capacity %d",
				x.pod.Name, lacks[0].ResourceName, lacks[0].Requested, lacks[0].Used, lacks[0].Capacity))
			continue
		}
		admitted.AddPod(x.pod)
	}
	return failed
}

// concerned says why pods hold more than the administrator wants to offer.
func (e *estate) concerned() map[*tenant][]string {
	all := map[*tenant][]string{}
	for _, x := range e.tenants {
		shares, mib, cores := e.used(x.device)
		say := func(is bool, cause string) {
			if is {
				all[x] = append(all[x], "device "+string(x.device)+": "+cause)
			}
		}
		is := e.isThere(x.device)
		say(!is, "the driver does not list it")
		say(is && e.hidden[x.device], "the configuration no longer offers it")
		is = is && !e.hidden[x.device]
		memory, compute := e.memory, e.cores
		if e.modes[x.device] == sharing.MIG {
			memory, compute = 1, 1 // partitions are not scaled, and the offer is that of the wanted mode
		}
		say(is && shares > e.split, "more shares of it")
		say(is && !x.partition && mib > int64(81920*memory), "more of its memory")
		say(is && !x.partition && cores > int64(100*compute+0.5), "more of its compute")
		if x.written > (x.total()+e.unit-1)/e.unit {
			all[x] = append(all[x], "memory is counted in larger units")
		}
	}
	return all
}

// isThere reports whether a device is in the machine and answers.
func (e *estate) isThere(id sharing.DeviceID) bool {
	i := slices.IndexFunc(e.cards, func(f node.Facts) bool { return f.UUID == id })
	return i >= 0 && !e.lost[i]
}

// requireTold awaits an event for each cause that concerns a pod now and did not before.
func (e *estate) requireTold(before map[*tenant][]string) {
	var untold []string
	now := e.concerned()
	defer func() {
		if len(untold) > 0 {
			e.t.Logf("not told: %s", strings.Join(untold, "; "))
		}
	}()
	e.await("what pods are told", func() bool {
		list, err := e.api.CoreV1().Events("ns").List(context.Background(), metav1.ListOptions{})
		if err != nil {
			e.t.Fatal(err)
		}
		told := map[types.UID][]string{}
		for _, v := range list.Items {
			if v.Reason == "DeviceShareKept" {
				told[v.InvolvedObject.UID] = append(told[v.InvolvedObject.UID], v.Message)
			}
		}
		untold = nil
		for x, causes := range now {
			for _, cause := range causes {
				isTold := slices.ContainsFunc(told[x.pod.UID], func(text string) bool { return strings.Contains(text, cause) })
				if !isTold && !slices.Contains(before[x], cause) {
					untold = append(untold, x.pod.Name+": "+cause)
				}
			}
		}
		return len(untold) == 0
	})
	for _, namespace := range []string{"ns", "default"} { // so that the next look is as quick
		if list, err := e.api.CoreV1().Events(namespace).List(context.Background(), metav1.ListOptions{}); err == nil {
			for _, v := range list.Items {
				_ = e.api.CoreV1().Events(namespace).Delete(context.Background(), v.Name, metav1.DeleteOptions{})
			}
		}
	}
	e.api.ClearActions()
}

// edit changes one thing that the administrator wants, at random.
func (e *estate) edit() {
	id := e.cards[e.r.IntN(len(e.cards))].UUID
	switch e.r.IntN(6) {
	case 0:
		e.split = 1 + e.r.IntN(12)
	case 1:
		e.memory = []float64{0.1, 0.25, 0.5, 1, 2}[e.r.IntN(5)]
	case 2:
		e.cores = []float64{0.1, 0.5, 1, 2}[e.r.IntN(4)]
	case 3:
		e.unit = []int64{1, 1, 10, 1024}[e.r.IntN(4)]
	case 4:
		e.hidden[id] = !e.hidden[id]
	case 5:
		e.modes[id] = sharing.Modes()[e.r.IntN(len(sharing.Modes()))]
	}
	e.write()
}
