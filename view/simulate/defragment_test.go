// SPDX-License-Identifier: Apache-2.0

package simulate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/sharing/factory"
	"deviceshare/view"
	"deviceshare/view/capture"
	"deviceshare/view/simulate"
)

func defragment(t testing.TB, s *capture.State, moves int) *view.Plan {
	t.Helper()
	l, err := simulate.Defragment(s, &simulate.Question{Backends: factory.New(), SchedulerName: "volcano"}, moves)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestMovesBringFreeDevicesTogether(t *testing.T) {
	s := again(t, captured(withGroups(node("a", 4), node("b", 4), node("c", 4),
		runsOn("a0", "a", 0, 2048), runsOn("b0", "b", 0, 2048), runsOn("b1", "b", 1, 2048),
		runsOn("c0", "c", 0, 2048), runsOn("c1", "c", 1, 2048), runsOn("c2", "c", 2, 2048), waiting("huge", fmt.Sprint(2*memory)))...))
	l := defragment(t, s, 3)
	if want := []view.FreeDevices{{Devices: 4, Before: 0, After: 2}, {Devices: 2, Before: 2, After: 2}, {Devices: 1, Before: 3, After: 3}}; !slices.Equal(l.Free, want) {
		t.Errorf("free %+v, want %+v, by %v", l.Free, want, stepsOf(l))
	}
	if want := []string{"default/a0 a->c Moved", "default/b0 b->c Moved", "default/b1 b->c Moved"}; !slices.Equal(stepsOf(l), want) {
		t.Errorf("steps %v, want %v", stepsOf(l), want)
	}
	const want = "More devices would be free together if 3 pods moved (allowed so far: 0). " +
		"Pods have up to 30s to end; up to 30m of device time is lost.\n"
	if text := l.Text(view.Paint{}); !strings.HasPrefix(text, want) || !strings.Contains(text, "4 devices or more   0           2") {
		t.Errorf("it says\n%s", text)
	}
	if l := defragment(t, s, 1); len(l.Steps) != 1 || l.Free[0].After != 1 {
		t.Errorf("one move: %v, free %+v", stepsOf(l), l.Free)
	}
}

// Many more nodes are free than a plan has steps.
func TestWhatIsFreeStaysFreeHoweverMuchItIs(t *testing.T) {
	objects := []any{node("a", 2), node("b", 2), runsOn("x", "a", 0, 2048), runsOn("y", "b", 0, 2048)}
	for n := range 100 {
		objects = append(objects, node(fmt.Sprint("free-", n), 2))
	}
	l := defragment(t, captured(withGroups(objects...)...), 4)
	if want := []view.FreeDevices{{Devices: 2, Before: 100, After: 101}, {Devices: 1, Before: 102, After: 102}}; !slices.Equal(l.Free, want) || len(l.Steps) != 1 {
		t.Errorf("free %+v, want %+v, by %v", l.Free, want, stepsOf(l))
	}
}

func TestImportantPodsMoveToBringDevicesTogether(t *testing.T) {
	stays, x := runsOn("y", "a", 1, 2048), runsOn("x", "a", 0, 2048)
	stays.OwnerReferences = nil
	objects := withGroups(node("a", 2), x, stays, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 1_000_000_000})
	for _, o := range objects {
		if g, is := o.(*schedulingv1beta1.PodGroup); is {
			g.Spec.PriorityClassName = "high"
		}
	}
	if l := defragment(t, again(t, captured(objects...)), 1); !slices.Equal(stepsOf(l), []string{"default/x a->a Moved"}) || l.Free[1].After != 1 {
		t.Errorf("%s %v, free %+v", l.Answer, stepsOf(l), l.Free)
	}
}

func TestWhereNoMovesHelpNoneAreNamed(t *testing.T) {
	for name, s := range map[string]*capture.State{
		"all is free":    captured(node("a", 2), node("b", 2)),
		"all is in use":  captured(withGroups(node("a", 1), runsOn("x", "a", 0, memory))...),
		"there are none": captured(),
	} {
		if l := defragment(t, s, 8); len(l.Steps) > 0 || l.Answer != "No moves bring more free devices together." {
			t.Errorf("%s: %s %v", name, l.Answer, stepsOf(l))
		}
	}
}

// TestMovesLeaveWhatThePlanSays moves the pods of random clusters by hand.
func TestMovesLeaveWhatThePlanSays(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	clusters, helped := 100, 0
	if testing.Short() {
		clusters = 20
	}
	for range clusters {
		c := randomCluster(random)
		moves := 1 + random.IntN(3)
		l := defragment(t, captured(withGroups(c.objects()...)...), moves)
		before, after := c.emptyNodes(nil), c.emptyNodes(l.Steps)
		if len(l.Steps) > moves || l.Free[0].Before != before || l.Free[0].After != after || after < before || (after > before) != (len(l.Steps) > 0) {
			t.Fatalf("%+v with %d moves: %v; %d nodes were empty and %d are, it says %+v", c, moves, stepsOf(l), before, after, l.Free)
		}
		if least := c.fewestMoves(); before == 0 && (least > 0 && least <= moves) != (after > 0) {
			t.Fatalf("%+v: %d moves empty a device, %d were allowed, and the plan is %v", c, least, moves, stepsOf(l))
		}
		if len(l.Steps) > 0 {
			helped++
		}
	}
	if helped < clusters/5 {
		t.Errorf("only %d of %d plans moved anybody", helped, clusters)
	}
}

// emptyNodes counts the nodes without pods when the steps are taken.
func (c *plainCluster) emptyNodes(steps []view.Step) (n int) {
	used := make([]int64, c.nodes)
	for i, on := range c.node {
		for _, s := range steps {
			if s.Pod == fmt.Sprintf("default/p%d", i) {
				if _, err := fmt.Sscanf(s.To, "n%d", &on); err != nil || !c.may[i] {
					panic(fmt.Sprint(s, err))
				}
			}
		}
		if used[on] += c.mib[i]; used[on] > memory {
			panic(fmt.Sprintf("node %d has more than there is: %+v", on, steps))
		}
	}
	for _, mib := range used {
		if mib == 0 {
			n++
		}
	}
	return n
}
