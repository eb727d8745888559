// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// node is a node with one device of 80 GiB in each of the modes.
func modesNode(name string, modes ...sharing.Mode) sharing.Inventory {
	inv := devices(name, len(modes), 81920)
	inv.GeometryHash = "abc"
	for i, m := range modes {
		inv.Devices[i].Mode = m
		if m == sharing.MIG {
			inv.Devices[i].MIG = migNode(name).Devices[0].MIG
		}
	}
	return inv
}

// naming is a pod of 5 GiB that names modes, or none if the text is empty.
func naming(name, modes string) *corev1.Pod {
	pod := podOf(name, "g", asks{number: 1, memory: 5000})
	if modes != "" {
		pod.Annotations[wire.UserMode] = modes
	}
	return pod
}

// filled is a pod that leaves a device only so many MiB.
func filled(t *testing.T, name string, inv sharing.Inventory, device int, free int64) *corev1.Pod {
	t.Helper()
	d := inv.Devices[device]
	return runningOn(t, podOf(name, "g", asks{number: 1, memory: 1000}), inv.Node,
		sharing.Share{Device: d.ID, Mode: d.Mode, Memory: d.Memory - sharing.MiBs(free)})
}

func TestAnEarlierModeOfThePodsListWinsWhateverTheNodesScore(t *testing.T) {
	cases := map[string]struct {
		modes  string
		first  sharing.Inventory // comes first by name, and is the fuller one
		second sharing.Inventory
		node   string
		mode   sharing.Mode
	}{
		"the first choice is on the emptier node":     {"mps,hami-core", modesNode("n1", sharing.HAMiCore), modesNode("n2", sharing.MPS), "n2", sharing.MPS},
		"and on the fuller one":                       {"hami-core,mps", modesNode("n1", sharing.HAMiCore), modesNode("n2", sharing.MPS), "n1", sharing.HAMiCore},
		"partitions first":                            {"mig,hami-core", modesNode("n1", sharing.HAMiCore), modesNode("n2", sharing.MIG), "n2", sharing.MIG},
		"the second choice before the third":          {"mig,mps,hami-core", modesNode("n1", sharing.HAMiCore), modesNode("n2", sharing.MPS), "n2", sharing.MPS},
		"weaker first if the user wants it":           {"time-slicing,hami-core", modesNode("n1", sharing.HAMiCore), modesNode("n2", sharing.TimeSlicing), "n2", sharing.TimeSlicing},
		"on a mixed node":                             {"mps,time-slicing", modesNode("n1", sharing.TimeSlicing), modesNode("n2", sharing.HAMiCore, sharing.TimeSlicing, sharing.MPS), "n2", sharing.MPS},
		"both nodes offer it, then the score decides": {"mps,hami-core", modesNode("n1", sharing.HAMiCore, sharing.MPS), modesNode("n2", sharing.MPS), "n1", sharing.MPS},
	}
	for name, c := range cases {
		for _, weight := range []int{0, 10, 1000} {
			t.Run(fmt.Sprint(name, ", weight ", weight), func(t *testing.T) {
				w := newWorld(t, nodeOf(t, c.first), nodeOf(t, c.second), groupOf("g", 1),
					filled(t, "there", c.first, 0, 40000), naming("p", c.modes))
				w.args["deviceshare.ScheduleWeight"] = weight
				w.schedule()
				if b := w.bound("p"); b.Target.Name != c.node {
					t.Errorf("on node %s, want %s", b.Target.Name, c.node)
				}
				if s := w.placement("p").Containers[0].Shares[0]; s.Mode != c.mode {
					t.Errorf("in mode %s, want %s", s.Mode, c.mode)
				}
			})
		}
	}
}

func TestAPodThatFellToALaterChoiceIsToldWhy(t *testing.T) {
	n1, n2 := modesNode("n1", sharing.MPS, sharing.HAMiCore), modesNode("n2", sharing.MPS)
	sick := modesNode("n3", sharing.MPS)
	sick.Devices[0].Healthy = false
	cases := map[string]struct {
		modes string
		want  string // "" if nothing is to be told
	}{
		"its second choice": {"mps,hami-core", "the devices are in mode hami-core, choice 2 of mps,hami-core: mps: 0/3 devices fit container \"c0\", 1 wanted: 2 short of free memory (NotEnoughMemory), 1 out of service (Unhealthy)"},
		"its third":         {"mig,mps,hami-core", "choice 3 of mig,mps,hami-core: mig: no device is in this mode; mps: 0/3 devices fit"},
		"its first":         {"hami-core,mps", ""},
		"its only one":      {"hami-core", ""},
		"it named none":     {"", ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nodeOf(t, n1), nodeOf(t, n2), nodeOf(t, sick), groupOf("g", 1),
				filled(t, "a", n1, 0, 100), filled(t, "b", n2, 0, 100), naming("p", c.modes))
			w.schedule()
			w.bound("p")
			w.settled()
			var told []string
			for _, line := range w.report.all() {
				if strings.Contains(line, "DeviceModeFallback") {
					told = append(told, line)
				}
			}
			if c.want == "" && len(told) > 0 || c.want != "" && (len(told) != 1 || !strings.HasPrefix(told[0], "Pod p: ") || !strings.Contains(told[0], c.want)) {
				t.Errorf("told %q, want %q", told, c.want)
			}
		})
	}
}

func TestAFallbackBecauseOfSomethingElseThanDevicesSaysSo(t *testing.T) {
	n1, n2 := nodeOf(t, modesNode("n1", sharing.HAMiCore)), nodeOf(t, modesNode("n2", sharing.MPS))
	n2.Status.Allocatable = n2.Status.Allocatable.DeepCopy()
	delete(n2.Status.Allocatable, corev1.ResourceCPU)
	w := newWorld(t, n1, n2, groupOf("g", 1), naming("p", "mps,hami-core"))
	w.schedule()
	w.bound("p")
	w.settled()
	if said := strings.Join(w.report.all(), "\n"); !strings.Contains(said, "mps: one node has room for it and was not chosen, for other reasons than devices") {
		t.Errorf("said:\n%s", said)
	}
}

func TestAPodNeverGetsAModeItDidNotName(t *testing.T) {
	all := sharing.Modes()
	for i, has := range all {
		for _, asks := range [][]sharing.Mode{{all[(i+1)%4]}, {all[(i+1)%4], all[(i+2)%4]}, {all[(i+3)%4], all[(i+2)%4], all[(i+1)%4]}} {
			t.Run(fmt.Sprint(asks, " where only ", has, " is"), func(t *testing.T) {
				w := newWorld(t, nodeOf(t, modesNode("n1", has, has)), groupOf("g", 1), naming("p", joinModes(asks)))
				w.schedule()
				if _, ok := w.binding("p"); ok {
					t.Fatal("it was bound")
				}
				if got := w.status.message("p"); !strings.Contains(got, "2 in a mode that the pod does not accept (WrongMode)") {
					t.Errorf("told %q", got)
				}
			})
		}
	}
}

func TestListsOfModesThatAreWrongPlaceNothing(t *testing.T) {
	for text, want := range map[string]string{
		"":                    "is empty",
		" ":                   "is empty",
		"hami-core,":          "item 2 is empty",
		"hami-core,hami-core": "hami-core is there twice",
		"hami-core,exclusive": `unknown mode "exclusive": want one of mig, hami-core, mps, time-slicing`,
		"HAMI-CORE":           "unknown mode",
		"hami-core, mig":      `unknown mode " mig"`,
	} {
		t.Run(text, func(t *testing.T) {
			pod := naming("p", "")
			pod.Annotations[wire.UserMode] = text
			w := newWorld(t, nodeOf(t, devices("n1", 1, 81920)), groupOf("g", 1), pod)
			w.schedule()
			if _, ok := w.binding("p"); ok {
				t.Fatal("it was bound")
			}
			if got := w.status.message("p"); !strings.Contains(got, want) || !strings.Contains(got, wire.UserMode) {
				t.Errorf("told %q, want %q", got, want)
			}
		})
	}
}

func TestWithoutAListTheScoreDecidesAmongModes(t *testing.T) {
	two := func(a, b sharing.Inventory) [2]sharing.Inventory { return [2]sharing.Inventory{a, b} }
	cases := map[string]struct {
		nodes   [2]sharing.Inventory
		weights map[string]any
		used    int // of the first node's first device, in MiB
		want    sharing.Mode
	}{
		"equal nodes, the documented order":        {nodes: two(modesNode("n1", sharing.TimeSlicing), modesNode("n2", sharing.HAMiCore)), want: sharing.HAMiCore},
		"equal devices, the documented order":      {nodes: two(modesNode("n1", sharing.TimeSlicing, sharing.MPS), modesNode("n2", sharing.TimeSlicing)), want: sharing.MPS},
		"the score comes before the order":         {nodes: two(modesNode("n1", sharing.TimeSlicing), modesNode("n2", sharing.HAMiCore)), used: 40000, want: sharing.TimeSlicing},
		"a weight comes before the score of nodes": {nodes: two(modesNode("n1", sharing.TimeSlicing), modesNode("n2", sharing.HAMiCore)), used: 40000, weights: map[string]any{"hami-core": 100}, want: sharing.HAMiCore},
		"and of devices":                           {nodes: two(modesNode("n1", sharing.TimeSlicing, sharing.MPS), modesNode("n2", sharing.TimeSlicing)), used: 40000, weights: map[string]any{"mps": 100}, want: sharing.MPS},
		"a small one does not":                     {nodes: two(modesNode("n1", sharing.TimeSlicing), modesNode("n2", sharing.HAMiCore)), used: 40000, weights: map[string]any{"hami-core": 1}, want: sharing.TimeSlicing},
		"the larger of two wins":                   {nodes: two(modesNode("n1", sharing.TimeSlicing), modesNode("n2", sharing.MPS)), weights: map[string]any{"mps": 3, "time-slicing": 5}, want: sharing.TimeSlicing},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nodeOf(t, c.nodes[0]), nodeOf(t, c.nodes[1]), groupOf("g", 1), naming("p", ""))
			if c.used > 0 {
				w.create(filled(t, "there", c.nodes[0], 0, int64(81920-c.used)))
			}
			for mode, n := range c.weights {
				w.args["deviceshare.ModeWeight."+mode] = n
			}
			w.schedule()
			w.bound("p")
			if s := w.placement("p").Containers[0].Shares[0]; s.Mode != c.want {
				t.Errorf("in mode %s, want %s", s.Mode, c.want)
			}
		})
	}
}

func TestTheModeOfANodeIsScoredWithoutWritingAnything(t *testing.T) {
	n1 := infoOf(nodeOf(t, modesNode("n1", sharing.MPS, sharing.HAMiCore)), nil)
	p := bare(t, n1)
	p.arguments = framework.Arguments{}
	task := api.NewTaskInfo(naming("p", "mps,hami-core"))
	p.rememberAsk(task)
	first, err := p.nodeOrder(task, n1)
	again, _ := p.nodeOrder(task, n1)
	if err != nil || first != again || len(p.overlay.placed) != 0 {
		t.Errorf("scores %v and %v, %v; placed %v", first, again, err, p.overlay.placed)
	}
}

// In-tree: a mode that is not understood is taken for hami-core.
func TestDefect13_AModeNobodyKnowsIsNeverTakenForHamiCore(t *testing.T) {
	for _, mode := range []string{"exclusive", "HAMI-CORE", "mig2", " "} {
		node := nodeOf(t, devices("n1", 1, 81920))
		delete(node.Annotations, wire.NodeInventory)
		node.Annotations[wire.NodeRegister] = "GPU-n1-0,10,81920,NVIDIA-Test,true," + mode + ":"
		w := newWorld(t, node, groupOf("g", 1), naming("p", ""))
		w.schedule()
		if _, ok := w.binding("p"); ok {
			t.Errorf("a device in mode %q was given", mode)
		}
		if said := strings.Join(w.report.all(), "\n"); !strings.Contains(said, "DeviceInventoryUnreadable") || !strings.Contains(said, "unknown mode") {
			t.Errorf("mode %q: said %q", mode, said)
		}
	}
}

// In-tree: the mode of the last card is the node's, for pods that run there too.
func TestDefect13_PodsKeepTheModeTheirDeviceHadWhenItIsEdited(t *testing.T) {
	old := modesNode("n1", sharing.HAMiCore, sharing.HAMiCore)
	now := modesNode("n1", sharing.MPS, sharing.HAMiCore)
	w := newWorld(t, nodeOf(t, now), groupOf("g", 1), filled(t, "there", old, 0, 60000), naming("p", "mps"), naming("q", "hami-core"))
	w.schedule()
	if _, ok := w.binding("p"); ok {
		t.Error("a device that is held in another mode was given in the new one")
	}
	w.bound("q")
	if s := w.placement("q").Containers[0].Shares[0]; s.Device != now.Devices[1].ID || s.Mode != sharing.HAMiCore {
		t.Errorf("the other device was to be given, got %+v", s)
	}
}

func TestAFallbackDoesNotClaimThatNodesWereLookedAtWhichMayNotHaveBeen(t *testing.T) {
	saved := options.ServerOpts
	t.Cleanup(func() { options.ServerOpts = saved })
	var infos []*api.NodeInfo
	for i := range 10 {
		name := fmt.Sprint("n", i)
		infos = append(infos, infoOf(nodeOf(t, modesNode(name, sharing.MPS)), nil))
	}
	p := bare(t, infos...)
	for percentage, want := range map[int32]string{
		100: "mps: 10 nodes have room for it and were not chosen, for other reasons than devices",
		40:  "mps: 10 nodes have room for it and were not chosen: for other reasons than devices, or not looked at, since Volcano stops when 4 of 10 nodes fit (--percentage-nodes-to-find)",
	} {
		options.ServerOpts = &options.ServerOption{MinNodesToFind: 1, PercentageOfNodesToFind: percentage}
		if got := p.whyNot(p.askOf(api.NewTaskInfo(naming("p", "mps,hami-core"))), sharing.MPS); got != want {
			t.Errorf("%d %%: said %q, want %q", percentage, got, want)
		}
	}
}
