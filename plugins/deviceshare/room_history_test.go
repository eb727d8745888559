// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/sharing"
	"deviceshare/sharing/events"
	"deviceshare/sharing/wire"
)

// roomHistory lets random things happen to a cluster, and remembers who was evicted for whom.
type roomHistory struct {
	*lab
	random *rand.Rand
	// rounds are when and where pods were chosen to leave, by the pod that gets their room.
	rounds map[string][]round
	// asked are the victims that were seen, and boundAt when a pod was bound, by name.
	asked   map[string]bool
	boundAt map[string]int64
	nodeOf  map[string]string
	where   map[string]string
	// leftFor is for whom a pod left, and leftAt when; minimum is that of groups.
	leftFor map[string]string
	leftAt  map[string]int64
	minimum map[string]int32
	names   int
	// selective says that some pods do not accept all neighbours.
	selective bool
}

// round is a second in which a pod was chosen to leave a node.
type round struct {
	at   int64
	node string
}

// longestGrace is within how many seconds a pod has ended that was told to leave, as arrive makes
// it.
const longestGrace = 5

func newRoomHistory(t *testing.T, seed uint64) *roomHistory {
	var objects []runtime.Object
	for n := range 3 {
		objects = append(objects, nodeOf(t, devices(fmt.Sprint("n", n), 2, 10000)))
	}
	h := newHistoryOf(newLab(t, objects...), rand.New(rand.NewPCG(seed, 7)))
	if h.selective = seed%4 == 0; seed%2 == 1 {
		h.cache.AddQueueV1beta1(queueBelow(t, "default", "", "memory=40000")) // of 60000
	}
	return h
}

// newHistoryOf is a history of a lab in which nothing has happened.
func newHistoryOf(l *lab, r *rand.Rand) *roomHistory {
	keepsNoGangs(l) // as shipped
	return &roomHistory{lab: l, random: r, rounds: map[string][]round{}, asked: map[string]bool{}, boundAt: map[string]int64{},
		nodeOf: map[string]string{}, where: map[string]string{}, leftFor: map[string]string{}, leftAt: map[string]int64{}, minimum: map[string]int32{}}
}

// histories yields the seeds of random histories: so many, or those that make histories says.
func histories(usual uint64) func(yield func(seed uint64) bool) {
	first, _ := strconv.ParseUint(os.Getenv("DEVICESHARE_HISTORIES_FIRST"), 10, 64)
	if n, err := strconv.ParseUint(os.Getenv("DEVICESHARE_HISTORIES"), 10, 64); err == nil {
		usual = n
	}
	return func(yield func(uint64) bool) {
		for seed := first; seed < first+usual && yield(seed); seed++ {
		}
	}
}

// classOf is the priority class of a pod, by its name.
func classOf(pod string) int {
	return slices.Index([]string{"l", "h", "t"}, pod[:1])
}

// arrive makes a pod, or a gang of two or three, of some priority.
func (h *roomHistory) arrive() {
	class := h.random.IntN(3)
	if h.random.IntN(2) == 0 {
		class = 0
	}
	h.names++
	group := fmt.Sprintf("%s%d", []string{"l", "h", "t"}[class], h.names)
	members := []int{1, 1, 1, 2, 3}[h.random.IntN(5)]
	minimum := int32(members)
	if class == 0 && h.random.IntN(3) == 0 {
		minimum = 0
	}
	want := []asks{{number: 1, memory: 9950}, {number: 2, memory: 9950}, {number: 1, memory: 3000}, {number: 1, memory: 6000}}[h.random.IntN(4)]
	h.minimum[group] = minimum
	h.create(important([]string{"low", "high", "top"}[class], group, minimum))
	for i := range members {
		pod := withGrace(podOf(fmt.Sprintf("%sx%d", group, i), group, want), int64(h.random.IntN(5)))
		pod.Annotations[schedulingv1beta1.PodPreemptable] = "true"
		h.replace(pod.Name, class == 0 && h.random.IntN(2) == 0)
		if h.selective {
			h.chooseNeighbours(pod)
		}
		h.create(pod)
	}
}

// chooseNeighbours has some pods accept none, or none of a colour.
func (h *roomHistory) chooseNeighbours(pod *corev1.Pod) {
	pod.Labels = map[string]string{"colour": []string{"red", "blue", "green"}[h.random.IntN(3)]}
	switch h.random.IntN(5) {
	case 0:
		pod.Annotations[wire.UserNeighbours] = "none"
	case 1, 2:
		pod.Annotations[wire.UserNotBeside] = "colour=red"
	}
}

// checkNeighbours checks that no two pods share a device of which one does not accept the other.
func (h *roomHistory) checkNeighbours(v *sharing.View) {
	h.t.Helper()
	pods := map[sharing.Owner]corev1.Pod{}
	for _, p := range h.pods() {
		pods[sharing.Owner(p.UID)] = p
	}
	refuses := func(p, o corev1.Pod) bool {
		return p.Annotations[wire.UserNeighbours] == "none" || p.Annotations[wire.UserNotBeside] != "" && o.Labels["colour"] == "red"
	}
	for _, a := range v.Held() {
		for _, b := range v.Held() {
			p, known := pods[a.Owner]
			if o, also := pods[b.Owner]; known && also && a.Owner != b.Owner && refuses(p, o) {
				h.t.Errorf("second %d, device %s: pod %s does not accept pod %s beside it", h.seconds.Load(), v.Device.ID, p.Name, o.Name)
			}
		}
	}
}

// observe notes who was asked to leave, and who was bound.
func (h *roomHistory) observe() {
	h.t.Helper()
	for _, pod := range h.pods() {
		h.noteBound(&pod)
		if wish := h.noteTold(&pod); wish != "" && classOf(wish) <= classOf(pod.Name) {
			h.t.Errorf("second %d: pod %s leaves for %s", h.seconds.Load(), pod.Name, wish)
		}
	}
	h.checkLedgers()
}

// noteBound notes where a pod was bound. It reports whether that is news.
func (h *roomHistory) noteBound(pod *corev1.Pod) bool {
	if pod.Spec.NodeName == "" || h.nodeOf[pod.Name] != "" {
		return false
	}
	h.nodeOf[pod.Name], h.boundAt[pod.Name] = pod.Spec.NodeName, h.seconds.Load()
	return true
}

// noteTold notes for whom a pod is told to leave. It returns that pod, "" if there is no news.
func (h *roomHistory) noteTold(pod *corev1.Pod) (wish string) {
	h.t.Helper()
	for _, c := range pod.Status.Conditions {
		if c.Type != corev1.DisruptionTarget || h.asked[pod.Name] || c.Reason == events.DeviceDrained {
			continue
		}
		h.asked[pod.Name] = true
		var node string
		if _, err := fmt.Sscanf(c.Message, "makes room on %s for %s", &node, &wish); err != nil {
			h.t.Fatalf("pod %s has the condition %q: %v", pod.Name, c.Message, err)
		}
		wish = strings.Trim(strings.TrimPrefix(wish, "ns/"), ";")
		h.where[wish], h.leftFor[pod.Name], h.leftAt[pod.Name] = node, wish, h.seconds.Load()
		h.rounds[wish] = append(h.rounds[wish], round{h.seconds.Load(), node})
	}
	return wish
}

// checkLedgers checks what the scheduler believes of each node.
func (h *roomHistory) checkLedgers() {
	h.t.Helper()
	for name, n := range h.store.cluster.Nodes() {
		if n.Ledger == nil {
			continue
		}
		if err := n.Ledger.Check(); err != nil {
			h.t.Errorf("second %d, node %s: %v", h.seconds.Load(), name, err)
		}
		for i := range n.Ledger.Views() {
			h.checkNeighbours(&n.Ledger.Views()[i])
		}
	}
}

// finish ends a pod that has done its work.
func (h *roomHistory) finish(name string) {
	h.t.Helper()
	h.replace(name, false)
	h.leave(name)
	h.caughtUp()
}

// failSome has one in ten evictions fail once.
func (h *roomHistory) failSome() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, pod := range h.pods() {
		h.failing[pod.Name] = h.random.IntN(10) / 9
	}
}

// judgeRounds checks that whoever left made room for a pod that was bound, in one round.
func (h *roomHistory) judgeRounds() {
	h.t.Helper()
	for wish, rounds := range h.rounds {
		first := rounds[0]
		if !h.wasServed(wish, first.at) {
			h.t.Errorf("%d pods left node %s from second %d on for pod %s, which was not bound: told %q", len(rounds), h.where[wish], first.at, wish, h.status.message(wish))
		}
		for _, again := range rounds[1:] {
			if again.at != first.at && !h.robbed(wish, first, again.at) {
				h.t.Errorf("pods left for %s in second %d, and again in second %d", wish, first.at, again.at)
			}
		}
	}
}

// wasServed reports whether the pod got the room that was made for it, or a more important one that
// of its gang.
func (h *roomHistory) wasServed(wish string, since int64) bool {
	for pod, at := range h.boundAt {
		if at >= since && (pod == wish || classOf(pod) > classOf(wish) && h.isGangsPlace(wish, h.nodeOf[pod])) {
			return true
		}
	}
	return false
}

// isGangsPlace reports whether room was made on a node for a pod of the gang.
func (h *roomHistory) isGangsPlace(pod, node string) bool {
	for mate, where := range h.where {
		if where == node && groupNameOf(mate) == groupNameOf(pod) {
			return true
		}
	}
	return false
}

// Pods arrive, end, and are made again at random. Every pod that had to leave made room for one
// that was bound, in one round.
func TestNobodyIsEvictedInVainInAnyHistory(t *testing.T) {
	seeds, steps := uint64(8), 500
	if testing.Short() {
		seeds, steps = 2, 120
	}
	evictions := 0
	for seed := range histories(seeds) {
		h := newRoomHistory(t, seed)
		deleted := map[string]bool{}
		for range steps {
			switch h.random.IntN(5) {
			case 0, 1:
				if len(h.pods()) < 14 {
					h.arrive()
				}
			case 2: // a pod has done its work
				if running := h.running(); len(running) > 4 {
					name := running[h.random.IntN(len(running))]
					deleted[name] = true
					h.finish(name)
				}
			}
			h.tick()
			h.observe()
		}
		for range 30 { // what was begun comes to its end
			h.tick()
			h.observe()
		}
		evictions += len(h.asked)
		h.checkGangs(deleted)
		h.judgeRounds()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if evictions == 0 {
		t.Error("nobody was evicted: the test shows nothing")
	}
	t.Logf("%d evictions", evictions)
}

// checkGangs checks that gangs left as a whole, or stayed.
func (h *roomHistory) checkGangs(ended map[string]bool) {
	h.t.Helper()
	for pod, wish := range h.leftFor {
		group := groupNameOf(pod)
		if h.minimum[group] < 2 {
			continue
		}
		for mate := range h.nodeOf {
			if groupNameOf(mate) == group && !h.asked[mate] && !ended[mate] && h.boundAt[mate] < h.leftAt[pod] && !strings.Contains(mate, "-") {
				h.t.Errorf("pod %s left for %s in second %d, and pod %s of its gang, bound in second %d, stays", pod, wish, h.leftAt[pod], mate, h.boundAt[mate])
			}
		}
	}
}

// groupNameOf returns the name of a pod's group.
func groupNameOf(pod string) string {
	group, _, _ := strings.Cut(pod, "x")
	return group
}

// robbed reports whether a more important pod was bound between two rounds, or took the place that
// was made in the first one and was bound there as soon as those had ended who left.
func (h *roomHistory) robbed(wish string, first round, to int64) bool {
	for pod, at := range h.boundAt {
		took := h.nodeOf[pod] == first.node && at <= first.at+longestGrace+1
		if at >= first.at && (at <= to || took) && classOf(pod) > classOf(wish) {
			return true
		}
	}
	return false
}

// Schedulers restart, evictions fail, nodes are cordoned, and those who wait give up: nobody leaves
// for a pod that is less important, and what ends unplaced names no node.
func TestFailuresLeaveNothingBehind(t *testing.T) {
	seeds, steps := uint64(8), 500
	if testing.Short() {
		seeds, steps = 2, 80
	}
	for seed := range histories(seeds) {
		h := newRoomHistory(t, seed+1000)
		h.with("predicates")
		for range steps {
			switch h.random.IntN(8) {
			case 0, 1, 2:
				if len(h.pods()) < 14 {
					h.arrive()
				}
			case 3:
				h.restart()
			case 4:
				h.cordon(fmt.Sprint("n", h.random.IntN(3)), h.random.IntN(2) == 0)
			case 5:
				if pods := h.pods(); len(pods) > 6 {
					h.leave(pods[h.random.IntN(len(pods))].Name)
					h.caughtUp()
				}
			case 6:
				h.failSome()
			}
			h.tick()
			h.observe()
		}
		for n := range 3 {
			h.cordon(fmt.Sprint("n", n), false)
		}
		for range 130 {
			h.tick()
			h.observe()
		}
		for _, pod := range h.pods() {
			if node := pod.Status.NominatedNodeName; node != "" && pod.Spec.NodeName == "" && h.store.room.Holds() == 0 {
				t.Errorf("seed %d: pod %s waits and names node %s, on which nothing is kept for it", seed, pod.Name, node)
			}
		}
		if t.Failed() {
			return
		}
	}
}

// cordon keeps new pods off a node, or lets them on it again.
func (h *roomHistory) cordon(node string, on bool) { h.cordonWith(devices(node, 2, 10000), on) }

// cordonWith has a node with these devices take new pods, or none.
func (l *lab) cordonWith(inv sharing.Inventory, on bool) {
	l.t.Helper()
	object := nodeOf(l.t, inv)
	object.Spec.Unschedulable = on
	l.publish(object)
	l.eventually("Volcano has seen the node", func() bool {
		l.cache.Mutex.Lock()
		defer l.cache.Mutex.Unlock()
		return l.cache.Nodes[inv.Node].Node.Spec.Unschedulable == on
	})
}
