// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/plugins/proportion"

	"deviceshare/sharing"
	"deviceshare/sharing/sharingtest"
	"deviceshare/sharing/wire"
)

// modesHistory is a room history on nodes whose devices are in all modes. Pods ask in every form,
// and some may move.
type modesHistory struct {
	*roomHistory
	nodes   []sharing.Inventory
	devices map[string]sharing.Device
	kinds   modesKinds
	// promised are the nodes that were promised to those that move, and found those on which their
	// successors were bound, by group.
	promised, found map[string][]string
	// ended are the pods that were done.
	ended map[string]bool
	// cordoned is since when devices take no new pods.
	cordoned map[string]int64
}

// modesKinds says what may happen in a history.
type modesKinds struct{ fails, hasQueues bool }

// anyDevices is a node with devices of a model, each in one of its modes.
func anyDevices(r *rand.Rand, node string) sharing.Inventory {
	inv := sharing.Inventory{Node: node, GeometryHash: "abc"}
	for i := range 1 + r.IntN(3) {
		model := []string{"A100-80", "A100-80", "A100-40", "A30", "T4"}[r.IntN(5)]
		modes := []sharing.Mode{sharing.MIG, sharing.HAMiCore, sharing.MPS, sharing.TimeSlicing, sharing.MIG}
		mode := modes[r.IntN(len(modes))]
		if mode == sharing.MIG && model == "T4" {
			mode = sharing.HAMiCore
		}
		d := sharingtest.Device(i, model, mode)
		d.ID = sharing.DeviceID(fmt.Sprintf("GPU-%s-%d", node, i))
		if mode == sharing.MIG && r.IntN(2) == 0 {
			d = sharingtest.BestFit(d)
		}
		inv.Devices = append(inv.Devices, d)
	}
	return inv
}

func newModesHistory(t *testing.T, seed uint64, kinds modesKinds) *modesHistory {
	r := rand.New(rand.NewPCG(seed, 31))
	var objects []runtime.Object
	h := &modesHistory{devices: map[string]sharing.Device{}, kinds: kinds, promised: map[string][]string{}, found: map[string][]string{}, ended: map[string]bool{}, cordoned: map[string]int64{}}
	for n := range 2 + r.IntN(2) {
		inv := anyDevices(r, fmt.Sprint("n", n))
		for _, d := range inv.Devices {
			h.devices[string(d.ID)] = d
		}
		h.nodes = append(h.nodes, inv)
		objects = append(objects, nodeOf(t, inv))
	}
	h.roomHistory = newHistoryOf(newMovesLab(t, objects...), r)
	if kinds.hasQueues {
		h.cache.AddQueueV1beta1(queueFrom(t, "mine", "weight=2"))
		h.cache.AddQueueV1beta1(queueFrom(t, "theirs", "weight=1"))
		h.oneTier(proportion.PluginName)
		asShipped(h.lab)
	}
	h.orderAsShipped()
	return h
}

// anyAsk is what the containers of a pod ask for, in one of the forms that users write.
func (h *modesHistory) anyAsk() []asks {
	r := h.random
	memory := []int64{500, 4864, 5000, 9000, 10240, 15000, 20480, 24576, 40000}[r.IntN(9)]
	switch r.IntN(10) {
	case 0, 8:
		return []asks{{number: 1}}
	case 9:
		return []asks{{}, {number: 1, memory: memory}}
	case 1:
		return []asks{{number: 2, memory: memory}}
	case 2:
		return []asks{{number: 1, cores: int64(10 + 10*r.IntN(9))}}
	case 3:
		return []asks{{number: 1, memory: memory, cores: int64(5 + 5*r.IntN(12))}}
	case 4:
		return []asks{{number: 1, memory: memory / 2}, {number: 1, memory: memory}}
	}
	return []asks{{number: 1, memory: memory}}
}

// arriveInAnyForm makes a pod, or a gang, of some priority.
func (h *modesHistory) arriveInAnyForm() {
	r := h.random
	class := []int{0, 0, 0, 1, 1, 2}[r.IntN(6)]
	h.names++
	group := fmt.Sprintf("%s%d", []string{"l", "h", "t"}[class], h.names)
	members := []int{1, 1, 1, 1, 2, 3}[r.IntN(6)]
	minimum := int32(members)
	if r.IntN(3) == 0 {
		minimum = 1
	}
	want, moves, isReplaced := h.anyAsk(), r.IntN(4) > 0, r.IntN(2) == 0
	modes := []string{"", "", "", "", "mig", "hami-core", "mps", "time-slicing", "mig,hami-core", "mps,time-slicing"}[r.IntN(10)]
	// Who has waited for long has others move at once, and moves also after a restart.
	made := h.seconds.Load() - int64(7200*r.IntN(2))
	h.minimum[group] = minimum
	g := important([]string{"low", "high", "top"}[class], group, minimum)
	if h.kinds.hasQueues {
		g.Spec.Queue = []string{"mine", "theirs"}[r.IntN(2)]
	}
	h.create(g)
	isMixed := r.IntN(4) == 0
	for i := range members {
		if isMixed {
			want = h.anyAsk()
		}
		pod := since(withGrace(podOf(fmt.Sprintf("%sx%d", group, i), group, want...), int64(r.IntN(5))), made)
		pod.Annotations[schedulingv1beta1.PodPreemptable] = "true"
		if modes != "" {
			pod.Annotations[wire.UserMode] = modes
		}
		if moves {
			movable(pod)
		}
		h.replace(pod.Name, moves || isReplaced)
		h.create(pod)
	}
}

// observeAll notes what an observer sees: who is told to leave for whom, who is bound where, and
// what each device has to give.
func (h *modesHistory) observeAll() {
	h.t.Helper()
	given := map[string][]givenShare{}
	for _, pod := range h.pods() {
		group := groupOfPod(&pod)
		if h.noteBound(&pod) {
			h.checkCordons(&pod)
			if strings.Contains(pod.Name, "-") {
				h.found[group] = append(h.found[group], pod.Spec.NodeName)
			}
		}
		shares := h.given(&pod)
		if pod.Spec.NodeName != "" && len(shares) == 0 {
			h.t.Fatalf("pod %s is bound without a placement", pod.Name)
		}
		for _, s := range shares {
			given[s.UUID] = append(given[s.UUID], s)
		}
		if wish := h.noteTold(&pod); wish != "" {
			_, place, moves := strings.Cut(disruption(&pod), "a place is kept for it on ")
			if moves {
				h.promised[group] = append(h.promised[group], place)
			}
			if least := classOf(pod.Name); !h.kinds.hasQueues && (classOf(wish) < least || classOf(wish) == least && !moves) {
				h.t.Errorf("second %d: pod %s leaves for %s", h.seconds.Load(), pod.Name, wish)
			}
		}
	}
	for id, shares := range given {
		if why := wrongOn(h.devices[id], shares); why != "" {
			h.t.Errorf("second %d, device %s: %s", h.seconds.Load(), id, why)
		}
	}
	h.checkLedgers()
}

// wrongOn says what is wrong with the parts of a device that are given at the same time, "" for
// nothing.
func wrongOn(d sharing.Device, given []givenShare) string {
	var memory, cores int64
	for i, s := range given {
		memory, cores = memory+s.Memory, cores+s.Cores
		switch {
		case s.Mode != string(d.Mode):
			return fmt.Sprintf("pod %s has it in mode %s, it is in mode %s", s.pod, s.Mode, d.Mode)
		case s.Mode == string(sharing.MIG) && s.Part == nil:
			return fmt.Sprintf("pod %s has no partition", s.pod)
		case s.Mode != string(sharing.MIG) && s.Whole && len(given) > 1:
			return fmt.Sprintf("pod %s has all of it beside others", s.pod)
		}
		for _, o := range given[:i] {
			if s.Part != nil && o.Part != nil && s.Part.Start < o.Part.Start+o.Part.Size && o.Part.Start < s.Part.Start+s.Part.Size {
				return fmt.Sprintf("the partitions of %s and %s overlap", s.pod, o.pod)
			}
		}
	}
	if memory > int64(d.Memory) || cores > 100 || len(given) > d.MaxShares {
		return fmt.Sprintf("%d bytes of %d, %d %% and %d shares are given", memory, d.Memory, cores, len(given))
	}
	return ""
}

// step lets something happen.
func (h *modesHistory) step() {
	r := h.random
	switch r.IntN(6) {
	case 0, 1, 2:
		if len(h.pods()) < 16 {
			h.arriveInAnyForm()
		}
	case 3: // a pod has done its work
		if running := h.running(); len(running) > 5 {
			name := running[r.IntN(len(running))]
			h.ended[name] = true
			h.finish(name)
		}
	case 4:
		if h.kinds.fails {
			h.disturb()
		}
	}
}

// disturb does what breaks plans.
func (h *modesHistory) disturb() {
	switch r := h.random; r.IntN(8) {
	case 0:
		h.restart()
	case 1:
		h.setLeads(r.IntN(2) == 0)
	case 2:
		h.failSome()
	case 3: // a device breaks, or works again
		inv := h.nodes[r.IntN(len(h.nodes))]
		d := &inv.Devices[r.IntN(len(inv.Devices))]
		d.Healthy = !d.Healthy
		h.publish(nodeOf(h.t, inv))
	case 4: // a node goes, or comes back
		h.cordonWith(h.nodes[r.IntN(len(h.nodes))], r.IntN(2) == 0)
	case 6, 7:
		h.cordonSome()
	case 5: // somebody who waits gives up
		for _, pod := range h.pods() {
			if pod.Spec.NodeName == "" {
				h.ended[pod.Name] = true
				h.endPod(pod.Name)
				return
			}
		}
	}
}

// cordonSome has people keep new pods off a device, for ever or for some seconds, or drain it, or
// take that back.
func (h *modesHistory) cordonSome() {
	r := h.random
	inv := h.nodes[r.IntN(len(h.nodes))]
	d := &inv.Devices[r.IntN(len(inv.Devices))]
	delete(h.cordoned, string(d.ID))
	if d.Cordon != nil {
		d.Cordon = nil
	} else if d.Cordon = (&sharing.Cordon{Drains: r.IntN(2) == 0}); r.IntN(3) == 0 {
		d.Cordon.Until = h.store.now().Add(time.Duration(1+r.IntN(20)) * time.Second).UTC().Format(time.RFC3339)
	} else {
		h.cordoned[string(d.ID)] = h.seconds.Load()
	}
	h.publish(nodeOf(h.t, inv))
}

// checkCordons checks that a pod that was just bound has no share of a device that took no pods
// when that was decided.
func (h *modesHistory) checkCordons(pod *corev1.Pod) {
	for _, s := range h.given(pod) {
		if since, is := h.cordoned[s.UUID]; is && h.seconds.Load() > since+2 {
			h.t.Errorf("second %d: pod %s is bound with device %s, cordoned since second %d", h.seconds.Load(), pod.Name, s.UUID, since)
		}
	}
}

// run lets things happen in so many seconds, and then what was begun come to its end.
func (h *modesHistory) run(steps int) {
	h.t.Helper()
	for range steps {
		h.step()
		h.tick()
		h.observeAll()
	}
	h.repair()
	for range map[bool]int{false: 40, true: 220}[h.kinds.fails] {
		h.tick()
		h.observeAll()
	}
	if h.kinds == (modesKinds{}) {
		h.judge()
	}
	if n := h.store.room.Holds(); n != 0 && h.kinds.fails {
		h.t.Errorf("%d holds are left", n)
	}
}

// repair has everything work again.
func (h *modesHistory) repair() {
	h.setLeads(true)
	if !h.kinds.fails {
		return
	}
	clear(h.cordoned)
	for _, inv := range h.nodes {
		for i := range inv.Devices {
			inv.Devices[i].Healthy, inv.Devices[i].Cordon = true, nil
		}
		h.cordonWith(inv, false)
	}
}

// judge checks what must hold where nothing failed: who left made room for a pod that was bound,
// and who moved is where it was told.
func (h *modesHistory) judge() {
	h.t.Helper()
	h.judgeRounds()
	for group, nodes := range h.promised {
		if h.hasLost(group) {
			continue // what is made again of it cannot start
		}
		for _, node := range nodes {
			i := slices.Index(h.found[group], node)
			if i < 0 {
				h.t.Errorf("group %s: promised %v, successors are on %v", group, nodes, h.found[group])
				break
			}
			h.found[group] = slices.Delete(h.found[group], i, i+1)
		}
	}
}

// hasLost reports whether pods of a gang have ended for good.
func (h *modesHistory) hasLost(group string) bool {
	for name := range h.ended {
		if h.minimum[group] > 1 && groupNameOf(name) == group {
			return true
		}
	}
	return false
}

// Devices of all modes, pods of all forms: whoever leaves makes room for a pod that is bound,
// whoever moves finds its place, and nothing is given twice.
func TestRoomIsMadeOnDevicesOfAllModes(t *testing.T) {
	seeds, steps := uint64(8), 200
	if testing.Short() {
		seeds, steps = 1, 80
	}
	left, moved := 0, 0
	for name, kinds := range map[string]modesKinds{
		"nothing fails": {}, "failures": {fails: true}, "queues": {hasQueues: true}, "failures and queues": {fails: true, hasQueues: true},
	} {
		if testing.Short() && kinds.fails != kinds.hasQueues {
			continue
		}
		t.Run(name, func(t *testing.T) {
			for seed := range histories(seeds) {
				h := newModesHistory(t, seed, kinds)
				h.run(steps)
				left += len(h.asked)
				for _, nodes := range h.promised {
					moved += len(nodes)
				}
				if t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
		})
	}
	if t.Logf("%d pods left, %d of them moved", left, moved); left == 0 || moved == 0 && !testing.Short() {
		t.Error("nobody left, or nobody moved: the test shows nothing")
	}
}
