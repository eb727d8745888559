// SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/sharing"
	"deviceshare/sharing/events"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/wire"
	"deviceshare/view"
	"deviceshare/view/capture"
	"deviceshare/view/simulate"
)

func planFor(t testing.TB, s *capture.State, pod string) *view.Plan {
	t.Helper()
	return planWish(t, s, &simulate.Wish{Pod: types.NamespacedName{Namespace: "default", Name: pod}})
}

func planWish(t testing.TB, s *capture.State, wish *simulate.Wish) *view.Plan {
	t.Helper()
	l, err := simulate.Plan(s, &simulate.Question{Backends: factory.New(), SchedulerName: "volcano"}, wish)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// runsOn is a running pod of a controller with a share of a device of a node, in a group of its
// name. It has run for ten minutes.
func runsOn(name, node string, device int, mib int64) *corev1.Pod {
	annotations, err := wire.PlacementAnnotations(sharing.Placement{Node: node, Containers: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{{
		Device: sharing.DeviceID(fmt.Sprintf("GPU-%s-%d", node, device)), Mode: sharing.HAMiCore, Memory: sharing.MiBs(mib),
	}}}}}, 1, 1700000000)
	if err != nil {
		panic(err)
	}
	p := waiting(name, fmt.Sprint(mib))
	for key, value := range annotations {
		p.Annotations[key] = value
	}
	p.Spec.NodeName, p.Status.Phase = node, corev1.PodRunning
	p.Status.StartTime = &metav1.Time{Time: time.Unix(1700000000, 0).Add(-10 * time.Minute)}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "r", Controller: ptr.To(true)}}
	return p
}

// waiting is a pod without a node that asks for a share with so many MiB, or for a whole device if
// that is "", in a group of its name.
func waiting(name, mib string) *corev1.Pod {
	amounts := list(wire.ResourceNumber, 1)
	if mib != "" {
		amounts = list(wire.ResourceNumber, 1, wire.ResourceMemory, mib)
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{wire.GroupName: name}},
		Spec: corev1.PodSpec{SchedulerName: "volcano", Containers: []corev1.Container{{
			Name: "main", Resources: corev1.ResourceRequirements{Limits: amounts, Requests: amounts},
		}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending},
	}
}

// withGroups adds the groups that pods name, each with the least number of its members.
func withGroups(objects ...any) []any {
	members := map[string]int{}
	for _, o := range objects {
		if p, is := o.(*corev1.Pod); is {
			members[p.Annotations[wire.GroupName]]++
		}
	}
	for name, n := range members {
		g := group(name)
		g.Spec.MinMember, g.Status.Phase = int32(n), schedulingv1beta1.PodGroupInqueue
		objects = append(objects, g)
	}
	return objects
}

func stepsOf(l *view.Plan) (out []string) {
	for _, s := range l.Steps {
		out = append(out, fmt.Sprintf("%s %s->%s %s", s.Pod, s.Node, s.To, s.Event))
	}
	slices.Sort(out)
	return out
}

func TestAPlanNamesThePodsThatCouldMoveAndWhatItCosts(t *testing.T) {
	small := runsOn("small", "a", 0, 2048)
	small.Annotations[wire.UserRestartCost] = "5m"
	s := again(t, captured(withGroups(node("a", 1), node("b", 1), node("c", 1), small, runsOn("x", "b", 0, 8192), runsOn("y", "b", 0, 6144),
		runsOn("z", "c", 0, 15000), waiting("whole", ""))...))
	l := planFor(t, s, "whole")
	if len(l.Notes) != 3 || !strings.HasPrefix(l.Notes[2], "The capture has neither namespaces nor") {
		t.Errorf("notes %v", l.Notes)
	}
	if want := []string{"default/small a->b Moved"}; !slices.Equal(stepsOf(l), want) {
		t.Fatalf("steps %v, want %v: %s", stepsOf(l), want, l.Answer)
	}
	step := l.Steps[0]
	if step.Permitted || step.Devices != 1 || step.Runs != 600 || step.Work != 300 || step.Grace != 30 || step.UID != "uid-small" {
		t.Errorf("the step is %+v", step)
	}
	const want = "default/whole could start on a if 1 pod moved (allowed so far: 0). " +
		"Pods have up to 30s to end; up to 5m of device time is lost."
	if l.Answer != want {
		t.Errorf("it says\n%s\nwant\n%s", l.Answer, want)
	}
	if text := l.Text(view.Paint{}); !strings.Contains(text, "default/small   a      b    1         0          10m        5m          no") {
		t.Errorf("the table is\n%s", text)
	}
}

func TestAPlanSaysThatAYoungPodMayHaveToRest(t *testing.T) {
	young := runsOn("x", "a", 0, 1024)
	young.CreationTimestamp = metav1.NewTime(time.Unix(1700000000, 0).Add(-10 * time.Minute))
	l := planFor(t, captured(withGroups(node("a", 1), node("b", 1), runsOn("y", "b", 0, 8192), young, waiting("whole", ""))...), "whole")
	if len(l.Steps) != 1 || !strings.Contains(strings.Join(l.Notes, "\n"), "made within the last hour") {
		t.Errorf("steps %v, notes %v", stepsOf(l), l.Notes)
	}
}

func TestAPlanSaysWhatElseThereIs(t *testing.T) {
	stays := runsOn("x", "a", 0, 4096)
	stays.Annotations[wire.UserMayMove] = wire.MustStay
	bare := runsOn("x", "a", 0, 4096)
	bare.OwnerReferences = nil
	stays2 := runsOn("y", "b", 0, 8192)
	stays2.Annotations[wire.UserMayMove] = wire.MustStay
	labelled := runsOn("x", "a", 0, 4096)
	labelled.Labels = map[string]string{"app": "web"}
	may := runsOn("x", "a", 0, 4096)
	may.Annotations[wire.UserMayMove] = wire.MayMove
	gated := waiting("whole", "")
	gated.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/wait"}}
	for name, c := range map[string]struct {
		whole   *corev1.Pod
		objects []any
		answer  string
		steps   int
	}{
		"it fits": {waiting("whole", ""), nil, "default/whole can start on a: nobody has to leave.", 0},
		"the scheduler moves a pod that may move": {
			waiting("whole", ""), []any{node("b", 1), may, runsOn("y", "b", 0, 4096)},
			"default/whole can start on a when 1 pod has left, which the scheduler sees to.", 1,
		},
		"the only pod refuses": {
			waiting("whole", ""), []any{node("b", 1), stays, runsOn("y", "b", 0, 14336)}, "default/whole would not start, whichever pods of no higher priority moved: ", 0,
		},
		"its namespace refuses": {
			waiting("whole", ""), []any{node("b", 1), runsOn("x", "a", 0, 4096), runsOn("y", "b", 0, 4096), namespace("default", map[string]string{wire.UserMayMove: wire.MustStay})},
			"default/whole would not start, whichever pods of no higher priority moved: ", 0,
		},
		"its namespace allows it": {
			waiting("whole", ""), []any{node("b", 1), runsOn("x", "a", 0, 4096), stays2, namespace("default", map[string]string{wire.UserMayMove: wire.MayMove})},
			"default/whole can start on a when 1 pod has left, which the scheduler sees to.", 1,
		},
		"a budget protects it": {
			waiting("whole", ""), []any{node("b", 1), labelled, stays2, budget("web", 0)}, "default/whole would not start, whichever pods of no higher priority moved: ", 0,
		},
		"nobody makes the pod again": {
			waiting("whole", ""), []any{node("b", 1), bare, runsOn("y", "b", 0, 14336)}, "default/whole would not start, whichever pods of no higher priority moved: ", 0,
		},
		"there is no other place": {waiting("whole", ""), []any{runsOn("x", "a", 0, 4096)}, "default/whole would not start, whichever pods of no higher priority moved: ", 0},
		"a gate":                  {gated, []any{node("b", 1)}, `default/whole would not start, whichever pods of no higher priority moved: its scheduling gate "example.com/wait" is set`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := planFor(t, again(t, captured(withGroups(append(c.objects, node("a", 1), c.whole)...)...)), "whole")
			if !strings.HasPrefix(l.Answer, c.answer) || len(l.Steps) != c.steps {
				t.Errorf("it says %q with the steps %v", l.Answer, stepsOf(l))
			}
		})
	}
}

func TestAPlanIsForTheWholeGroupAndForNobodyElse(t *testing.T) {
	a, b, other := waiting("team-0", ""), waiting("team-1", ""), waiting("other", "")
	a.Annotations[wire.GroupName], b.Annotations[wire.GroupName] = "team", "team"
	other.Spec.Priority = ptr.To[int32](100) // it would be served first
	s := again(t, captured(withGroups(node("a", 1), node("b", 1), node("c", 1), runsOn("x", "a", 0, 1024), runsOn("y", "b", 0, 1024),
		runsOn("z", "c", 0, 1024), a, b, other)...))
	l := planFor(t, s, "team-1")
	if len(l.For) != 2 || !l.Starts() || len(l.Steps) != 2 || !strings.HasPrefix(l.Answer, "default/team-0 and 1 more of its group could start on ") {
		t.Errorf("%s: for %+v, steps %v", l.Answer, l.For, stepsOf(l))
	}
}

func TestAPlanForDevicesIsForAPodThatWouldAskForThem(t *testing.T) {
	s := again(t, captured(withGroups(node("a", 2), node("b", 2), node("c", 1), runsOn("x", "a", 1, 1024), runsOn("y", "b", 0, 1024), runsOn("z", "b", 1, 1024),
		&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 100})...))
	for name, c := range map[string]struct {
		wish   simulate.Wish
		answer string
		steps  []string
	}{
		"a device": {simulate.Wish{Devices: 1}, "A pod with 1 device can start on ", nil},
		"two":      {simulate.Wish{Devices: 2}, "A pod with 2 devices could start on a if 1 pod moved", []string{"default/x a->b Moved"}},
		"on b": {
			simulate.Wish{Devices: 2, Node: "b"}, "A pod with 2 devices could start on b if 2 pods moved",
			[]string{"default/y b->c Moved", "default/z b->c Moved"},
		},
		"important":          {simulate.Wish{Devices: 2, PriorityClass: "high"}, "A pod with 2 devices can start on a when 1 pod has left, which", []string{"default/x a-> Preempted"}},
		"too many":           {simulate.Wish{Devices: 3}, "A pod with 3 devices would not start, whichever pods of no higher priority moved: ", nil},
		"a node that lacks":  {simulate.Wish{Devices: 1, Node: "d"}, "A pod with 1 device would not start, whichever pods of no higher priority moved: ", nil},
		"a queue that lacks": {simulate.Wish{Devices: 1, Queue: "q"}, "A pod with 1 device would not start, whichever pods of no higher priority moved: the scheduler has not", nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := planWish(t, s, &c.wish)
			if !strings.HasPrefix(l.Answer, c.answer) || !slices.Equal(stepsOf(l), c.steps) {
				t.Errorf("it says %q with the steps %v", l.Answer, stepsOf(l))
			}
		})
	}
}

func TestAPlanForAPodThatDoesNotWaitIsRefused(t *testing.T) {
	s := captured(withGroups(node("a", 1), runsOn("x", "a", 0, 1024))...)
	q := simulate.Question{Backends: factory.New(), SchedulerName: "volcano"}
	for pod, want := range map[string]string{"x": "it does not wait", "nobody": "is the namespace right?"} {
		if _, err := simulate.Plan(s, &q, &simulate.Wish{Pod: types.NamespacedName{Namespace: "default", Name: pod}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", pod, err)
		}
	}
}

// TestAPlanTakesTheFewestMovesAndHolds compares plans for random clusters of whole devices with all
// sets of pods that could move, tried with the place of each. Then the pods of the plan say that
// they may move, and the scheduler has to do what the plan says.
func TestAPlanTakesTheFewestMovesAndHolds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	planned, hopeless := 0, 0
	clusters := 400
	if testing.Short() {
		clusters = 40
	}
	for range clusters {
		c := randomCluster(random)
		s := captured(withGroups(c.objects()...)...)
		l := planFor(t, s, "whole")
		least := c.fewestMoves()
		if least < 0 {
			hopeless++
			if l.Starts() {
				t.Fatalf("nothing helps %+v, and the plan is %v", c, stepsOf(l))
			}
			continue
		}
		if !l.Starts() || len(l.Steps) != least {
			t.Fatalf("%+v: %d moves do, and the plan is %v: %s", c, least, stepsOf(l), l.Answer)
		}
		if planned++; least > 0 {
			c.expectCarriedOut(t, l)
		}
	}
	if planned < 15 || hopeless < 5 {
		t.Errorf("only %d plans and %d without one", planned, hopeless)
	}
}

// plainCluster has nodes of one device and pods with some MiB of it.
type plainCluster struct {
	nodes int
	node  []int
	mib   []int64
	may   []bool
}

func randomCluster(r *rand.Rand) *plainCluster {
	c := &plainCluster{nodes: 2 + r.IntN(2)}
	for n := range c.nodes {
		free := int64(memory)
		for range 1 + r.IntN(3) {
			if mib := 1024 * (1 + r.Int64N(9)); mib <= free {
				free -= mib
				c.node, c.mib, c.may = append(c.node, n), append(c.mib, mib), append(c.may, r.IntN(4) > 0)
			}
		}
	}
	return c
}

func (c *plainCluster) objects() []any {
	out := []any{waiting("whole", "")}
	for n := range c.nodes {
		out = append(out, node(fmt.Sprintf("n%d", n), 1))
	}
	for i := range c.node {
		p := runsOn(fmt.Sprintf("p%d", i), fmt.Sprintf("n%d", c.node[i]), 0, c.mib[i])
		if !c.may[i] {
			p.Annotations[wire.UserMayMove] = wire.MustStay
		}
		out = append(out, p)
	}
	return out
}

// fewestMoves is how few pods must move so that a device is empty, each to a place that is free
// while all are still there; -1 if none do.
func (c *plainCluster) fewestMoves() int {
	least := -1
	for set := range uint(1) << len(c.node) {
		if n := bits.OnesCount(set); (least < 0 || n < least) && c.emptiesOne(set) {
			least = n
		}
	}
	return least
}

func (c *plainCluster) emptiesOne(set uint) bool {
	free, empty := make([]int64, c.nodes), make([]bool, c.nodes)
	for n := range free {
		free[n], empty[n] = memory, true
	}
	var movers []int
	for i, n := range c.node {
		free[n] -= c.mib[i]
		if set&(1<<i) == 0 {
			empty[n] = false
			continue
		}
		if !c.may[i] {
			return false
		}
		movers = append(movers, i)
	}
	return c.clearsAny(empty, movers, free)
}

func (c *plainCluster) clearsAny(empty []bool, movers []int, free []int64) bool {
	for n := range c.nodes {
		if empty[n] && c.placeAll(movers, free, n) {
			return true
		}
	}
	return false
}

// placeAll tries all places for the movers but on the node that is cleared.
func (c *plainCluster) placeAll(movers []int, free []int64, cleared int) bool {
	if len(movers) == 0 {
		return true
	}
	for n := range free {
		if n == cleared || free[n] < c.mib[movers[0]] {
			continue
		}
		free[n] -= c.mib[movers[0]]
		fits := c.placeAll(movers[1:], free, cleared)
		free[n] += c.mib[movers[0]]
		if fits {
			return true
		}
	}
	return false
}

// expectCarriedOut has the pods of a plan say that they may move, and nobody else.
func (c *plainCluster) expectCarriedOut(t *testing.T, l *view.Plan) {
	t.Helper()
	objects := c.objects()
	for _, o := range objects {
		if p, is := o.(*corev1.Pod); is && slices.ContainsFunc(l.Steps, func(s view.Step) bool { return s.UID == string(p.UID) }) {
			p.Annotations[wire.UserMayMove] = wire.MayMove
		}
	}
	w := ask(t, captured(withGroups(objects...)...), simulate.Question{})
	if on := outcome(t, w, "default/whole").Node; on != l.For[0].Node || len(w.Evicted) != len(l.Steps) {
		t.Fatalf("%+v: the pod is on node %q and %v were evicted; the plan was %s: %v", c, on, w.Evicted, l.Answer, stepsOf(l))
	}
	for _, s := range l.Steps {
		if s.To == "" || s.Event != events.Moved {
			t.Fatalf("%+v: the step is %+v", c, s)
		}
	}
}
