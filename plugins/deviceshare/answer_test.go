// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"testing"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// A remembered refusal must not outlive the ledger it was given on, and must not
// be given to a pod that asks for something else.
func TestARefusalIsRememberedForEqualPodsOnAnUnchangedNodeOnly(t *testing.T) {
	node, pods := full(t, "n1")
	info := infoOf(node, pods)
	p := bare(t, info)
	n := p.nodes["n1"]
	task := func(name string, memory int64) *api.TaskInfo {
		ti := api.NewTaskInfo(podOf(name, "g", asks{number: 1, memory: memory, cores: 20}))
		p.remember(ti)
		return ti
	}
	refuses := func(ti *api.TaskInfo) bool {
		r, _ := p.judge(p.ask(ti), n, ti, info, nil)
		return r.Refused()
	}
	remembered := func(ti *api.TaskInfo) bool {
		return n.Remembered(p.overlay.now(n), p.ask(ti).shape) != nil
	}
	first, second, small := task("a", 3000), task("b", 3000), task("c", 2000)
	if !refuses(first) || remembered(first) {
		t.Fatal("a pod that is alone of its kind: want a refusal, and nothing remembered")
	}
	if !refuses(second) || !remembered(second) {
		t.Fatal("the second of its kind: want a refusal that is remembered")
	}
	if !refuses(first) {
		t.Error("the remembered refusal was not given")
	}
	if refuses(small) {
		t.Error("a smaller pod was refused by the answer to a larger one")
	}
	fork := n.Ledger.Fork()
	for _, o := range fork.Owners() {
		fork.Release(o)
	}
	p.overlay.ledgers["n1"] = fork
	if refuses(second) {
		t.Error("the node became empty and still refuses")
	}
}

func TestPodsOfASpreadGroupAreNeverAnsweredFromMemory(t *testing.T) {
	a := &ask{request: sharing.PodRequest{Group: "g"}}
	if a.shape != "" || a.repeated {
		t.Fatal("the zero ask must not be remembered")
	}
	pod := podOf("a", "g", asks{number: 1, memory: 1000})
	pod.Annotations["volcano.sh/vgpu-podgroup-policy"] = "spread"
	settings := nodes.DefaultSettings()
	if got := readAsk(pod, &settings); got.request.Group == "" || got.shape != "" {
		t.Errorf("group %q, shape %q: the answer depends on which pod of the group asks", got.request.Group, got.shape)
	}
}

func TestRequestsThatDifferInHowAListIsSplitAreNotTakenForEqual(t *testing.T) {
	settings := nodes.DefaultSettings()
	shape := func(models string) string {
		pod := podOf("a", "g", asks{number: 1, memory: 1000})
		pod.Annotations[wire.UserUseModels] = models
		return readAsk(pod, &settings).shape
	}
	if one, two := shape("A100 80GB"), shape("A100,80GB"); one == two {
		t.Errorf("a model with a space and two models have the same shape %q", one)
	}
	if shape("A100,80GB") != shape("A100,80GB") {
		t.Error("equal requests have different shapes")
	}
}
