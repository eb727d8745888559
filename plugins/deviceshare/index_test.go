// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"errors"
	"testing"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/nodes"
)

// twoNodes is a session over two nodes with room on each device, and the task that Volcano is
// placing: the second of its kind, which was found to fit both.
func twoNodes(t *testing.T) (p *Plugin, task *api.TaskInfo, infos map[string]*api.NodeInfo) {
	t.Helper()
	infos = map[string]*api.NodeInfo{}
	for _, name := range []string{"n1", "n2"} {
		infos[name] = infoOf(full(t, name))
	}
	p = bare(t, infos["n1"], infos["n2"])
	for _, name := range []string{"a", "b"} {
		task = api.NewTaskInfo(podOf(name, "g", asks{number: 1, memory: 2500, cores: 20}))
		if err := p.prePredicate(task); err != nil {
			t.Fatal(err)
		}
	}
	for _, info := range infos {
		if err := p.predicate(task, info); err != nil {
			t.Fatal(err)
		}
	}
	return p, task, infos
}

func TestAFitIsKnownUntilSomethingChanges(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*Plugin)
		n1, n2  bool
		because string
	}{
		"nothing": {func(*Plugin) {}, true, true, "it was found out"},
		"devices of one node": {func(p *Plugin) { p.overlay.replaceLedger("n1", p.overlay.currentLedger(p.nodes["n1"]).Fork()) }, false, true,
			"only that node has changed"},
		"what was learned": {func(p *Plugin) { p.store.mix.Read(p.cluster()); p.useLearned() }, false, false,
			"which devices a container gets, and so what is left for the next, is the policy's choice"},
	} {
		t.Run(name, func(t *testing.T) {
			p, task, infos := twoNodes(t)
			c.change(p)
			for node, want := range map[string]bool{"n1": c.n1, "n2": c.n2} {
				if got := p.index.nodeEntry(infos[node]).knownToFit(p.askOf(task).kind); got != want {
					t.Errorf("%s: %t, want %t: %s", node, got, want, c.because)
				}
			}
		})
	}
}

func TestAFitOnceOthersHaveLeftIsNoFitNow(t *testing.T) {
	node, pods := full(t, "n1")
	info := infoOf(node, pods)
	p := bare(t, info)
	var task *api.TaskInfo
	for _, name := range []string{"a", "b"} {
		task = api.NewTaskInfo(withCPU(podOf(name, "g", asks{number: 4, memory: 5500, cores: 25}), 62))
		if err := p.prePredicate(task); err != nil {
			t.Fatal(err)
		}
	}
	move := func(to api.TaskStatus) {
		for _, t := range info.Tasks {
			leaving := t.Clone()
			leaving.Status = to
			_ = info.UpdateTask(leaving)
		}
	}
	move(api.Releasing)
	if err := p.predicate(task, info); err != nil || p.judgesNow(task, info) {
		t.Fatalf("when all have left: %v, and judged now: %t", err, p.judgesNow(task, info))
	}
	move(api.Running)
	if err := p.predicate(task, info); err == nil {
		t.Error("nobody leaves after all, and the node takes the pod")
	}
}

func TestAPodThatCannotBeReadIsNotKnownToFit(t *testing.T) {
	p, task, infos := twoNodes(t)
	p.askOf(task).mistakes = errors.New("one")
	if err := p.predicate(task, infos["n1"]); err == nil {
		t.Error("the node takes a pod that cannot be read, since it asks for the same as others")
	}
}

func TestNothingIsKnownOfCopiesOfANode(t *testing.T) {
	p, task, infos := twoNodes(t)
	copied := infos["n1"].Clone()
	if p.index.nodeEntry(copied) != nil {
		t.Error("a copy is in the index: what a dry run takes off it would not be seen")
	}
	if err := p.predicate(task, copied); err != nil {
		t.Errorf("the copy answers %v", err)
	}
	score, _ := p.nodeOrder(task, copied)
	if want, _ := p.nodeOrder(task, infos["n1"]); score != want {
		t.Errorf("the copy scores %v, the node %v", score, want)
	}
}

func TestOnlyKindsThatHaveABitAreNoted(t *testing.T) {
	kind := nodes.NewKind("s", needsOf(api.NewTaskInfo(podOf("a", "g"))))
	for name, c := range map[string]struct {
		kind sessionKind
		want bool
	}{
		"a kind that was seen before": {sessionKind{Kind: kind, repeated: true}, true},
		"the last that has a bit":     {sessionKind{Kind: kind, repeated: true, number: fitKinds - 1}, true},
		"the first that has none":     {sessionKind{Kind: kind, repeated: true, number: fitKinds}, false},
		"a pod alone of its kind":     {sessionKind{Kind: kind}, false},
		"a pod of no kind":            {sessionKind{repeated: true}, false},
	} {
		var e entry
		e.noteFit(c.kind)
		if got := e.knownToFit(c.kind); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
		if e.fits.Load() != 0 && e.knownToFit(sessionKind{Kind: kind, repeated: true, number: 7}) {
			t.Errorf("%s: another kind is known too", name)
		}
	}
}

func TestEveryNodeOfASessionHasItsOwnEntry(t *testing.T) {
	p, _, infos := twoNodes(t)
	infos["unknown"] = infoOf(full(t, "unknown"))
	x := newIndex(infos, p.nodes, map[string]float64{"n1": 1, "n2": 2})
	for name, rank := range map[string]float64{"n1": 1, "n2": 2, "unknown": 0} {
		if e := x.nodeEntry(infos[name]); e == nil || e.node != p.nodes[name] || e.rank != rank {
			t.Errorf("%s has entry %+v", name, e)
		}
	}
	var none *index
	none.forgetAll()
	if none.nodeEntry(infos["n1"]) != nil {
		t.Error("an index that is not there has an entry")
	}
}
