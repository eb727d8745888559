// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/plugins/capacity"
	"volcano.sh/volcano/pkg/scheduler/plugins/proportion"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// moveHistory is a random cluster in which pods move, and what an observer without knowledge of the
// scheduler has seen of it.
type moveHistory struct {
	*lab
	random *rand.Rand
	kinds  moveKinds
	// promised are the nodes that were promised, and found those on which successors were bound, by
	// group and shape.
	promised, found map[string][]string
	// told are the pods that were told, waiters those for whom they were, seen the successors.
	told, waiters, seen map[string]bool
	early               int
}

// moveKinds says what may happen in a history.
type moveKinds struct {
	isEarly, endsGangs, hasQueues, fails, hasCPUs bool
}

// manyOn is a pod with parts of several devices of a node.
func manyOn(t *testing.T, name, group, node string, memory int64, numbers ...int) *corev1.Pod {
	t.Helper()
	var shares []sharing.Share
	for _, d := range numbers {
		shares = append(shares, share(sharing.DeviceID(fmt.Sprintf("GPU-%s-%d", node, d)), memory))
	}
	return runningOn(t, podOf(name, group, asks{number: int64(len(numbers)), memory: memory}), node, shares...)
}

// fill puts pods on the devices of a node.
func (h *moveHistory) fill(t *testing.T, node string, numbers int) (objects []runtime.Object) {
	r := h.random
	for d := range numbers {
		for k := range []int{0, 1, 1, 1, 1, 2}[r.IntN(6)] {
			name, group := fmt.Sprintf("p%s%d%d", node, d, k), []string{"loose", "loose", "team", "team", "crew", "fixed"}[r.IntN(6)]
			pod := on(t, name, group, node, d, int64(1000+1000*r.IntN(5-2*k)))
			if d+1 < numbers && k == 1 && r.IntN(3) == 0 {
				pod = manyOn(t, name, group, node, 1000, d, d+1)
			}
			withGrace(pod, int64(r.IntN(8)))
			if h.kinds.hasCPUs {
				withCPUs(pod, int64(1+r.IntN(12)))
			}
			if group != "fixed" {
				movable(pod)
			}
			objects = append(objects, pod)
		}
	}
	return objects
}

func groupOfPod(pod *corev1.Pod) string {
	return pod.Annotations[schedulingv1beta1.KubeGroupNameAnnotationKey]
}

func newMoveHistory(t *testing.T, seed uint64, kinds moveKinds) *moveHistory {
	h := &moveHistory{random: rand.New(rand.NewPCG(seed, 101)), kinds: kinds, promised: map[string][]string{}, found: map[string][]string{},
		told: map[string]bool{}, waiters: map[string]bool{}, seen: map[string]bool{}}
	r := h.random
	var objects []runtime.Object
	members := map[string]int{}
	for n := range 2 + r.IntN(3) {
		node, numbers := fmt.Sprint("n", n), 1+r.IntN(3)
		objects = append(objects, nodeOf(t, devices(node, numbers, 10000)))
		objects = append(objects, h.fill(t, node, numbers)...)
	}
	for _, o := range objects {
		if pod, ok := o.(*corev1.Pod); ok {
			members[groupOfPod(pod)]++
		}
	}
	queue := func() string {
		if kinds.hasQueues {
			return []string{"mine", "theirs"}[r.IntN(2)]
		}
		return "default"
	}
	for _, name := range []string{"loose", "team", "crew", "fixed", "small"} {
		least := map[string]int{"team": members["team"], "crew": members["crew"] - 1}[name]
		g := groupIn(queue(), name, int32(max(0, least)))
		if kinds.hasQueues {
			g.Spec.PriorityClassName = []string{"", "low", "high"}[r.IntN(3)]
		}
		objects = append(objects, g)
	}
	for w := range 3 {
		name, number := fmt.Sprint("w", w), 1+r.IntN(2)
		g := groupIn(queue(), name, int32(number))
		if kinds.hasQueues {
			g.Spec.PriorityClassName = []string{"low", "high", "top"}[r.IntN(3)]
		}
		objects = append(objects, g)
	}
	h.lab = newMovesLab(t, objects...)
	if kinds.hasQueues {
		h.cache.AddQueueV1beta1(queueFrom(t, "mine", "weight=1 deserved.number=4"))
		h.cache.AddQueueV1beta1(queueFrom(t, "theirs", "weight=1 deserved.number=4"))
		h.oneTier([]string{capacity.PluginName, proportion.PluginName}[r.IntN(2)])
		asShipped(h.lab)
	}
	h.orderAsShipped()
	return h
}

// arrive makes the pods that wait of a group.
func (h *moveHistory) arrive(w int) {
	name := fmt.Sprint("w", w)
	g, err := h.cache.VCClient().SchedulingV1beta1().PodGroups("ns").Get(h.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	want := []asks{{number: 1}, {number: 2}, {number: 2}, {number: 1, memory: 9500}, {number: 1, memory: 8000}, {number: 2, memory: 7000}}[h.random.IntN(6)]
	for k := range g.Spec.MinMember {
		pod := since(podOf(fmt.Sprintf("%sx%d", name, k), name, want), h.seconds.Load())
		if h.kinds.hasCPUs {
			withCPUs(pod, int64(1+h.random.IntN(30)))
		}
		h.create(withGrace(pod, 3))
	}
}

// control does what controllers do that make successors at once, or end a gang as a whole.
func (h *moveHistory) control() {
	for _, pod := range h.pods() {
		if pod.DeletionTimestamp == nil {
			continue
		}
		if _, _, moves := strings.Cut(disruption(&pod), "a place is kept for it on "); moves && h.kinds.endsGangs && groupOfPod(&pod) == "team" {
			for _, mate := range h.pods() {
				if groupOfPod(&mate) == "team" && mate.DeletionTimestamp == nil && mate.Spec.NodeName != "" && !strings.Contains(mate.Name, "-") {
					h.promised[shapeOfPod(&mate)] = append(h.promised[shapeOfPod(&mate)], mate.Spec.NodeName)
					h.leave(mate.Name)
				}
			}
		}
		if h.mu.Lock(); h.kinds.isEarly && h.replaced[pod.Name] {
			h.replaced[pod.Name] = false
			h.early++
			name := fmt.Sprintf("%s-e%d", strings.SplitN(pod.Name, "-", 2)[0], h.early)
			h.replaced[name] = true
			h.mu.Unlock()
			next := pod.DeepCopy()
			next.Name, next.UID, next.ResourceVersion, next.DeletionTimestamp, next.Spec.NodeName = name, types.UID("uid-"+name), "", nil, ""
			next.Annotations = map[string]string{schedulingv1beta1.KubeGroupNameAnnotationKey: groupOfPod(&pod), wire.UserMayMove: "true"}
			next.Status = corev1.PodStatus{Phase: corev1.PodPending}
			h.create(since(next, h.seconds.Load()))
			continue
		}
		h.mu.Unlock()
	}
	h.caughtUp()
}

// shapeOfPod is equal for pods that may take each other's place.
func shapeOfPod(pod *corev1.Pod) string {
	var text []string
	for name, n := range pod.Spec.Containers[0].Resources.Requests {
		text = append(text, fmt.Sprintf("%s=%s", name, n.String()))
	}
	slices.Sort(text)
	return groupOfPod(pod) + " " + strings.Join(text, " ")
}

// observe notes who was told what, and who was bound where, and adds up the devices.
func (h *moveHistory) observe() {
	h.t.Helper()
	used := map[string]int64{}
	for _, pod := range h.pods() {
		for _, s := range h.given(&pod) {
			used[s.UUID] += s.Memory
		}
		text := disruption(&pod)
		if before, node, moves := strings.Cut(text, "; it may move, and a place is kept for it on "); moves && pod.DeletionTimestamp != nil && !h.told[pod.Name] {
			h.told[pod.Name] = true
			h.promised[shapeOfPod(&pod)] = append(h.promised[shapeOfPod(&pod)], node)
			_, waiter, _ := strings.Cut(before, " for ns/")
			h.waiters[waiter] = true
		}
		if strings.Contains(pod.Name, "-") && pod.Spec.NodeName != "" && !h.seen[pod.Name] {
			h.seen[pod.Name] = true
			h.found[shapeOfPod(&pod)] = append(h.found[shapeOfPod(&pod)], pod.Spec.NodeName)
		}
	}
	for id, n := range used {
		if n > 10000<<20 {
			h.t.Errorf("second %d: %d bytes of device %s are given", h.seconds.Load(), n, id)
		}
	}
}

// givenShare is a part of a device, as a pod's annotation says.
type givenShare struct {
	pod    string
	UUID   string `json:"uuid"`
	Mode   string `json:"mode"`
	Memory int64  `json:"memory"`
	Cores  int64  `json:"cores"`
	Whole  bool   `json:"whole"`
	Part   *struct {
		Start int `json:"start"`
		Size  int `json:"size"`
	} `json:"partition"`
}

// given returns what a pod has of devices, nothing without a node or a placement.
func (l *lab) given(pod *corev1.Pod) (shares []givenShare) {
	l.t.Helper()
	var p struct {
		Containers []struct {
			Shares []givenShare `json:"shares"`
		} `json:"containers"`
	}
	text := pod.Annotations[wire.PodPlacement]
	if pod.Spec.NodeName == "" || text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		l.t.Fatalf("pod %s: %v", pod.Name, err)
	}
	for _, c := range p.Containers {
		for _, s := range c.Shares {
			s.pod = pod.Name
			shares = append(shares, s)
		}
	}
	return shares
}

// disturb does what breaks plans.
func (h *moveHistory) disturb() {
	r := h.random
	switch r.IntN(16) {
	case 0:
		h.restart()
	case 1:
		h.setLeads(false)
	case 2, 3:
		h.setLeads(true)
	case 4:
		for _, pod := range h.pods() {
			h.mu.Lock()
			h.failing[pod.Name] = r.IntN(3)
			h.mu.Unlock()
		}
	case 5:
		if name := fmt.Sprintf("w%dx0", r.IntN(3)); h.pod(name) != nil && h.pod(name).Spec.NodeName == "" {
			h.endPod(name)
		}
	case 6:
		if running := h.running(); len(running) > 0 {
			h.leave(running[r.IntN(len(running))])
			h.caughtUp()
		}
	}
}

func (h *moveHistory) run() {
	for second := range 45 {
		if second%7 == 0 && second/7 < 3 {
			h.arrive(second / 7)
		}
		if second > 9 && h.random.IntN(4) == 0 {
			pod := since(podOf(fmt.Sprint("small", second), "small", asks{number: 1, memory: int64(1000 + 1000*h.random.IntN(6))}), h.seconds.Load())
			h.create(withGrace(pod, 2))
		}
		if h.kinds.fails {
			h.disturb()
		}
		h.tick()
		h.observe()
		h.control()
	}
	h.setLeads(true)
	for range map[bool]int{false: 70, true: 220}[h.kinds.fails] {
		h.tick()
		h.observe()
		h.control()
	}
	before := len(h.evictions())
	for range 20 {
		h.tick()
		h.observe()
		h.control()
	}
	if got := h.evictions()[before:]; len(got) > 0 {
		h.t.Errorf("%v left long after the last pod had come", got)
	}
	if n := h.store.room.Holds(); n != 0 {
		h.t.Errorf("%d holds are left", n)
	}
}

// judge checks what must hold where nothing failed.
func (h *moveHistory) judge() {
	h.t.Helper()
	for _, name := range h.evictions() {
		if !h.told[name] && !h.kinds.hasQueues {
			h.t.Errorf("pod %s left and was promised no place", name)
		}
	}
	if h.kinds.fails || h.kinds.hasQueues {
		return
	}
	for shape, nodes := range h.promised {
		found := slices.Clone(h.found[shape])
		slices.Sort(found)
		if slices.Sort(nodes); !slices.Equal(found, nodes) {
			h.t.Errorf("%s: promised %v, successors are on %v", shape, nodes, found)
		}
	}
	for waiter := range h.waiters {
		if !h.isBound(waiter) {
			h.t.Errorf("pods moved for %s, which is not bound: told %q", waiter, h.status.message(waiter))
		}
	}
}

// Random histories, see moveKinds.
func TestWhoeverMovesIsPlacedInAnyHistory(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 1
	}
	for name, kinds := range map[string]moveKinds{
		"plain": {}, "successors come early": {isEarly: true}, "controllers end gangs": {endsGangs: true}, "CPUs": {hasCPUs: true},
		"queues": {hasQueues: true}, "failures": {fails: true, isEarly: true}, "failures and queues": {fails: true, hasQueues: true, endsGangs: true, hasCPUs: true},
	} {
		t.Run(name, func(t *testing.T) {
			moves, runs := 0, 0
			for seed := range histories(seeds) {
				runs++
				h := newMoveHistory(t, seed, kinds)
				h.run()
				h.judge()
				if moves += len(h.told); t.Failed() {
					t.Fatalf("seed %d", seed)
				}
			}
			t.Logf("%d moves in %d histories", moves, runs)
		})
	}
}

// Whatever happens in whatever second, nothing is left behind, and no device is given twice.
func TestNothingIsLeftOfAMoveWhateverHappens(t *testing.T) {
	gone := func(l *lab, group string) {
		if err := l.cache.VCClient().SchedulingV1beta1().PodGroups("ns").Delete(l.t.Context(), group, metav1.DeleteOptions{}); err != nil {
			l.t.Fatal(err)
		}
	}
	for name, happen := range map[string]func(l *lab){
		"the pod that waits is deleted":   func(l *lab) { l.endPod("new") },
		"the group of the mover is gone":  func(l *lab) { gone(l, "ma") },
		"nobody makes the mover again":    func(l *lab) { l.replace("a", false) },
		"the node it goes to is cordoned": func(l *lab) { (&roomHistory{lab: l}).cordon("n2", true) },
		"the node it leaves is cordoned":  func(l *lab) { (&roomHistory{lab: l}).cordon("n1", true) },
		"the scheduler restarts":          func(l *lab) { l.restart() },
		"another one leads for a while":   func(l *lab) { l.setLeads(false); l.tick(); l.tick(); l.setLeads(true) },
		"a device breaks": func(l *lab) {
			inv := devices("n2", 2, 10000)
			inv.Devices[0].Healthy = false
			l.publish(nodeOf(l.t, inv))
		},
	} {
		t.Run(name, func(t *testing.T) {
			for at := int64(9); at <= 14; at++ {
				if testing.Short() && at != 11 {
					continue
				}
				l := newMovesLab(t, oneToMove(t, nil)...)
				l.with("predicates")
				h := &moveHistory{lab: l, told: map[string]bool{}, seen: map[string]bool{}, promised: map[string][]string{}, found: map[string][]string{}, waiters: map[string]bool{}}
				for l.seconds.Load() < 220 {
					if l.seconds.Load() == at && (name != "the pod that waits is deleted" || l.nodeOfPod("new") == "") {
						happen(l)
					}
					l.tick()
					h.observe()
				}
				if n := l.store.room.Holds(); n != 0 || len(l.evictions()) > 1 {
					t.Errorf("second %d: %d holds are left, evicted %v", at, n, l.evictions())
				}
			}
		})
	}
}

// A StatefulSet makes a pod again with its name, and some controllers with other requests.
func TestSuccessorsOfTheSameNameAndOfAnotherShape(t *testing.T) {
	for memory, node := range map[int64]string{6000: "n2", 5000: "n2", 8000: ""} {
		l := newMovesLab(t, oneToMove(t, nil)...)
		l.replace("a", false)
		for l.seconds.Load() < 200 {
			l.tick()
			if l.pod("a") == nil {
				pod := since(movable(podOf("a", "ma", asks{number: 1, memory: memory})), l.seconds.Load())
				pod.UID = "uid-a-again"
				l.create(pod)
			}
		}
		l.requireMoved(map[string]string{"a": node, "new": "n1"})
		if n := l.store.room.Holds(); n != 0 {
			t.Errorf("%d holds are left", n)
		}
	}
}
