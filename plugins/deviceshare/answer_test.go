// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"testing"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// A remembered answer must not outlive the ledger it was given on, and must not
// be given to a pod that asks for something else.
func TestAnswersAreRememberedForEqualPodsOnAnUnchangedNodeOnly(t *testing.T) {
	for name, memory := range map[string]int64{"refusal": 3000, "fit": 2500} {
		t.Run(name, func(t *testing.T) {
			node, pods := full(t, "n1")
			info := infoOf(node, pods)
			p := bare(t, info)
			n := p.nodes["n1"]
			task := func(name string, memory int64) *api.TaskInfo {
				ti := api.NewTaskInfo(podOf(name, "g", asks{number: 1, memory: memory, cores: 20}))
				p.rememberAsk(ti)
				return ti
			}
			refuses := func(ti *api.TaskInfo) bool {
				r, _ := p.checkDevices(p.askOf(ti), n, ti, info, nil)
				return r.Refused()
			}
			remembered := func(ti *api.TaskInfo) bool {
				q := nodes.Question{Ledger: p.overlay.currentLedger(n), Era: p.store.era, Kind: p.askOf(ti).kind.Kind}
				return n.Remembered(&q) != nil
			}
			first, second, small, large := task("a", memory), task("b", memory), task("c", 2000), task("d", 4000)
			answer := refuses(first)
			if answer != (name == "refusal") || remembered(first) {
				t.Fatalf("a pod that is alone of its kind: refused %t, remembered %t", answer, remembered(first))
			}
			if refuses(second) != answer || !remembered(second) {
				t.Fatal("the second of its kind: want the same answer, remembered")
			}
			if refuses(first) != answer {
				t.Error("the remembered answer was not given")
			}
			if refuses(small) || !refuses(large) {
				t.Error("a pod was answered what another had asked")
			}
			fork := n.Ledger.Fork()
			for _, o := range fork.Owners() {
				if name == "refusal" {
					fork.Release(o)
				}
			}
			if name == "fit" {
				for i := range n.Inventory.Devices {
					held := sharing.Placement{Node: "n1", Containers: []sharing.ContainerShares{{Container: "main", Shares: []sharing.Share{share(n.Inventory.Devices[i].ID, 2500)}}}}
					fork.Record(sharing.Owner(fmt.Sprint("late-", i)), held)
				}
			}
			p.overlay.replaceLedger("n1", fork)
			if refuses(second) == answer {
				t.Error("the node changed and still answers the same")
			}
		})
	}
}

// What a pod is told from memory is what it would be told if nothing were remembered, whatever
// happened in the session and in those before it.
func (k *walk) checkAnswers() {
	k.t.Helper()
	p := k.w.plugin
	for _, j := range k.ssn.Jobs {
		for _, t := range j.TaskStatusIndex[api.Pending] {
			p.rememberAsk(t)
			for name, n := range p.nodes {
				k.checkAnswer(t, n, k.ssn.Nodes[name])
			}
		}
	}
}

func (k *walk) checkAnswer(t *api.TaskInfo, n *nodes.Node, info *api.NodeInfo) {
	k.t.Helper()
	p := k.w.plugin
	known, anew := p.askOf(t), readAsk(t.Pod, p.settings, nil)
	score, err := p.nodeOrder(t, info)
	want := 0.0
	if known != nil || p.valuesBare() {
		q := nodes.Question{Ledger: p.ledgerFor(n, t, info), Free: freeFor(t, info)}
		want = p.computeScore(anew, n, t, info, &q) + p.store.rank[n.Name]*tieBreak
	}
	if err != nil || score != want {
		k.t.Errorf("%s on %s scores %v (%v), and %v anew", t.Name, n.Name, score, err, want)
	}
	if known == nil {
		return
	}
	if known.kind.repeated {
		k.remembered++
	}
	w := p.limits.Allowance(t, known.served())
	for range 2 {
		got, short := p.checkDevices(known, n, t, info, w)
		want, alsoShort := p.checkDevices(anew, n, t, info, w)
		if got != want || (short == nil) != (alsoShort == nil) {
			k.t.Errorf("%s on %s is answered %+v, and %+v anew", t.Name, n.Name, got, want)
		}
		fits := p.requireServing(known, n) == nil && !want.Refused() && alsoShort == nil
		if err := p.predicate(t, info); (err == nil) != fits {
			k.t.Errorf("%s on %s: %v, and fits anew: %t", t.Name, n.Name, err, fits)
		}
	}
}

func TestPodsOfASpreadGroupAreNeverAnsweredFromMemory(t *testing.T) {
	a := &ask{request: sharing.PodRequest{Neighbours: &sharing.Neighbours{Group: "g"}}}
	if a.shape != "" || a.kind.Kind != nil || a.kind.repeated {
		t.Fatal("the zero ask must not be remembered")
	}
	pod := podOf("a", "g", asks{number: 1, memory: 1000})
	pod.Annotations["volcano.sh/vgpu-podgroup-policy"] = "spread"
	settings := nodes.DefaultSettings()
	if got := readAsk(pod, &settings, nil); got.request.Neighbours.Group == "" || got.shape != "" {
		t.Errorf("group %q, shape %q: the answer depends on which pod of the group asks", got.request.Neighbours.Group, got.shape)
	}
}

func TestRequestsThatDifferInHowAListIsSplitAreNotTakenForEqual(t *testing.T) {
	settings := nodes.DefaultSettings()
	shape := func(models string) string {
		pod := podOf("a", "g", asks{number: 1, memory: 1000})
		pod.Annotations[wire.UserUseModels] = models
		return readAsk(pod, &settings, nil).shape
	}
	if one, two := shape("A100 80GB"), shape("A100,80GB"); one == two {
		t.Errorf("a model with a space and two models have the same shape %q", one)
	}
	if shape("A100,80GB") != shape("A100,80GB") {
		t.Error("equal requests have different shapes")
	}
}
