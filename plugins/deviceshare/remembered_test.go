// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"errors"
	"testing"

	"volcano.sh/volcano/pkg/scheduler/api"
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

func TestAPodThatCannotBeReadFitsNoNode(t *testing.T) {
	p, task, infos := twoNodes(t)
	p.askOf(task).mistakes = errors.New("one")
	if err := p.predicate(task, infos["n1"]); err == nil {
		t.Error("the node takes a pod that cannot be read, since it asks for the same as others")
	}
}

func TestACopyOfANodeAnswersAsTheNode(t *testing.T) {
	p, task, infos := twoNodes(t)
	copied := infos["n1"].Clone()
	if err := p.predicate(task, copied); err != nil {
		t.Errorf("the copy answers %v", err)
	}
	score, _ := p.nodeOrder(task, copied)
	if want, _ := p.nodeOrder(task, infos["n1"]); score != want {
		t.Errorf("the copy scores %v, the node %v", score, want)
	}
}
