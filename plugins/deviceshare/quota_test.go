// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins"
	"volcano.sh/volcano/pkg/scheduler/plugins/capacity"
	"volcano.sh/volcano/pkg/scheduler/plugins/proportion"

	"deviceshare/sharing"
	"deviceshare/sharing/quota"
	"deviceshare/sharing/wire"
)

// amountsOf reads lists such as "memory=20000 cores=50 memory.a100=100".
func amountsOf(t *testing.T, text string) corev1.ResourceList {
	t.Helper()
	list := corev1.ResourceList{}
	for _, field := range strings.Fields(text) {
		name, amount, _ := strings.Cut(field, "=")
		list[corev1.ResourceName("volcano.sh/vgpu-"+name)] = resource.MustParse(amount)
	}
	return list
}

// queueBelow is an open queue with a capability, below another one.
func queueBelow(t *testing.T, name, parent, capability string) *schedulingv1beta1.Queue {
	t.Helper()
	q := queueOf(name, amountsOf(t, capability))
	q.Spec.Parent = parent
	return q
}

// groupIn is a group of a queue.
func groupIn(queue, name string, members int32) *schedulingv1beta1.PodGroup {
	g := groupOf(name, members)
	g.Spec.Queue = queue
	return g
}

// withPlugins adds plugins to the tier of the world's last one.
func (w *world) withPlugins(names ...string) {
	framework.RegisterPluginBuilder(proportion.PluginName, proportion.New)
	framework.RegisterPluginBuilder(capacity.PluginName, capacity.New)
	for _, name := range names {
		o := conf.PluginOption{Name: name}
		plugins.ApplyPluginConfDefaults(&o)
		w.tiers[len(w.tiers)-1].Plugins = append(w.tiers[len(w.tiers)-1].Plugins, o)
	}
}

// shortage is the limit that keeps a task from being allocated.
func (w *world) shortage(t *api.TaskInfo) (quota.Shortage, bool) {
	if short := w.plugin.limits.AllowanceNow(t, w.plugin.Request(t)).Unavoidable(); short != nil {
		return *short, true
	}
	return w.plugin.limits.Refused(t)
}

// tried runs a session and returns who was given devices, and why others were not.
func (w *world) tried() (placed []string, short map[string]string) {
	w.t.Helper()
	ssn := w.open()
	defer framework.CloseSession(ssn)
	conf.EnabledActionMap = map[string]bool{"allocate": true}
	allocate.New().Execute(ssn)
	short = map[string]string{}
	for _, job := range ssn.Jobs {
		for _, task := range job.Tasks {
			if task.Status == api.Pending {
				if s, yes := w.shortage(task); yes {
					short[task.Name] = s.String()
				}
			} else if task.Status != api.Running {
				placed = append(placed, task.Name)
			}
		}
	}
	slices.Sort(placed)
	return placed, short
}

func TestAQueueTakesNumberTimesAmount(t *testing.T) {
	for name, c := range map[string]struct {
		capability string
		pods       []asks // named a, b, c, ... each of a group of its own
		percent    int64  // of memory, for pods that ask for none
		placed     string
		short      map[string]string
	}{
		"several devices of one container": {
			capability: "memory=20000", pods: []asks{{number: 2, memory: 5000}, {number: 2, memory: 6000}}, placed: "a",
			short: map[string]string{"b": `queue "team" uses 10000MiB of 20000MiB volcano.sh/vgpu-memory: 12000MiB more is 2000MiB too much`},
		},
		"up to the capability": {
			capability: "memory=20000", pods: []asks{{number: 2, memory: 5000}, {number: 2, memory: 5000}}, placed: "a b",
		},
		"compute": {
			capability: "cores=150", pods: []asks{{number: 2, memory: 10, cores: 50}, {number: 1, memory: 10, cores: 60}}, placed: "a",
			short: map[string]string{"b": `queue "team" uses 100 percent of 150 percent volcano.sh/vgpu-cores: 60 percent more is 10 percent too much`},
		},
		"whole devices": {
			capability: "memory=25000", pods: []asks{{number: 2}, {number: 1}}, placed: "a",
			short: map[string]string{"b": `queue "team" uses 20000MiB of 25000MiB volcano.sh/vgpu-memory: 10000MiB more is 5000MiB too much`},
		},
		"whole devices are all of their compute": {
			capability: "cores=250", pods: []asks{{number: 2}, {number: 1}}, placed: "a",
			short: map[string]string{"b": `queue "team" uses 200 percent of 250 percent volcano.sh/vgpu-cores: 100 percent more is 50 percent too much`},
		},
		"percentages": {
			capability: "memory=12000", pods: []asks{{number: 2}, {number: 1}}, percent: 50, placed: "a",
			short: map[string]string{"b": `queue "team" uses 10000MiB of 12000MiB volcano.sh/vgpu-memory: 5000MiB more is 3000MiB too much`},
		},
		"a model": {
			capability: "memory.nvidia-test=15000 memory.other=1", pods: []asks{{number: 1, memory: 9000}, {number: 1, memory: 9000}}, placed: "a",
			short: map[string]string{"b": `queue "team" uses 9000MiB of 15000MiB volcano.sh/vgpu-memory.nvidia-test: 9000MiB more is 3000MiB too much`},
		},
		"a pod without devices in a queue that may take none": {
			capability: "memory=0 cores=0", pods: []asks{{}, {number: 1, memory: 1}}, placed: "a",
			short: map[string]string{"b": `queue "team" uses 0 of 0 volcano.sh/vgpu-memory: 1MiB more is 1MiB too much`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			node := nodeOf(t, devices("n1", 4, 10000))
			node.Status.Allocatable[wire.ResourcePercentage] = resource.MustParse("1000") // a scheduler adds up no percentages
			w := newWorld(t, node)
			w.cache.AddQueueV1beta1(queueBelow(t, "team", "", c.capability))
			for i, a := range c.pods {
				pod := podOf(string(rune('a'+i)), string(rune('a'+i)), a)
				if c.percent > 0 {
					pod.Spec.Containers[0].Resources.Limits[wire.ResourcePercentage] = *resource.NewQuantity(c.percent, resource.DecimalSI)
					pod.Spec.Containers[0].Resources.Requests[wire.ResourcePercentage] = *resource.NewQuantity(c.percent, resource.DecimalSI)
				}
				w.create(groupIn("team", pod.Name, 1), pod)
			}
			var all []string
			short := map[string]string{}
			for range c.pods { // which of the jobs comes first is not said: it may take two sessions
				placed, why := w.tried()
				all, short = append(all, placed...), why
			}
			checkTried(t, slices.Compact(slices.Sorted(slices.Values(all))), short, c.placed, c.short)
		})
	}
}

func checkTried(t *testing.T, placed []string, short map[string]string, wantPlaced string, wantShort map[string]string) {
	t.Helper()
	if got := strings.Join(placed, " "); got != wantPlaced {
		t.Errorf("placed %q, want %q", got, wantPlaced)
	}
	if got, want := fmt.Sprint(short), fmt.Sprint(wantShort); got != want {
		t.Errorf("short of\n%s\nwant\n%s", got, want)
	}
}

func TestAGangIsWithinTheQuotaTogether(t *testing.T) {
	for name, others := range map[string][]string{"alone": nil, "beside proportion": {proportion.PluginName}, "beside capacity": {capacity.PluginName}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nodeOf(t, devices("n1", 8, 10000)), groupIn("team", "gang", 3),
				podOf("a", "gang", asks{number: 2, memory: 4000}), podOf("b", "gang", asks{number: 2, memory: 4000}), podOf("c", "gang", asks{number: 2, memory: 4000}))
			w.cache.AddQueueV1beta1(queueBelow(t, "team", "", "memory=20000"))
			w.withPlugins(others...)
			placed, short := w.tried()
			if len(placed) > 0 || len(short) != 1 {
				t.Fatalf("placed %v, short of %v: two of three fit, so none must have devices, and one was refused", placed, short)
			}
			for _, why := range short {
				if want := `queue "team" uses 16000MiB of 20000MiB volcano.sh/vgpu-memory: 8000MiB more is 4000MiB too much`; why != want {
					t.Errorf("%s\nwant %s", why, want)
				}
			}
			ssn := w.open()
			job := ssn.Jobs["ns/gang"]
			if s, yes := w.plugin.limits.JobShortage(job); !yes || s.Used != 0 || s.Asked != int64(sharing.MiBs(24000)) {
				t.Errorf("the job, before any of it was tried: %v %s", yes, s.String())
			}
			framework.CloseSession(ssn)
			w.create(groupIn("team", "pair", 2), podOf("d", "pair", asks{number: 2, memory: 4000}), podOf("e", "pair", asks{number: 2, memory: 4000}))
			if placed, _ := w.tried(); !slices.Equal(placed, []string{"d", "e"}) {
				t.Errorf("placed %v: what the gang gave back is free", placed)
			}
		})
	}
}

func TestTheLimitsOfAQueueHoldForTheQueuesBelowIt(t *testing.T) {
	running := func(name, group string) *corev1.Pod {
		return runningOn(t, podOf(name, group, asks{number: 1}), "n1", share("GPU-n1-0", 10000))
	}
	w := newWorld(t, nodeOf(t, devices("n1", 4, 10000)), groupIn("b", "old", 1), groupIn("a", "new", 1), groupIn("a", "small", 1), running("old", "old"),
		podOf("new", "new", asks{number: 2, memory: 8000}), podOf("small", "small", asks{number: 1, memory: 8000}))
	for _, q := range []*schedulingv1beta1.Queue{queueBelow(t, "top", "", "memory=25000"), queueBelow(t, "a", "top", ""), queueBelow(t, "b", "top", "")} {
		w.cache.AddQueueV1beta1(q)
	}
	_, _ = w.tried()
	_, short := w.tried()
	w.bound("small")
	checkTried(t, nil, short, "", map[string]string{"new": `queue "top" uses 18000MiB of 25000MiB volcano.sh/vgpu-memory: 16000MiB more is 9000MiB too much`})
}

func TestWhatAWholeDeviceComesToIsKnownOnTheNode(t *testing.T) {
	mixed := devices("n1", 3, 10000)
	mixed.Devices[2].Memory, mixed.Devices[2].Model = sharing.MiBs(4000), "NVIDIA Small"
	big := devices("n2", 1, 10000)
	small := devices("n3", 1, 5000)
	for name, c := range map[string]struct {
		nodes      []sharing.Inventory
		capability string
		device     sharing.DeviceID // "" if the pod waits
		says       string
	}{
		"a smaller device of the node is within the limit": {
			nodes: []sharing.Inventory{mixed}, capability: "memory=6000", device: "GPU-n1-2",
		},
		"a device of another model is": {
			nodes: []sharing.Inventory{mixed}, capability: "cores.test=0", device: "GPU-n1-2",
		},
		"another node has one": {
			nodes: []sharing.Inventory{big, small}, capability: "memory=6000", device: "GPU-n3-0",
		},
		"the smallest device is too large": {
			nodes: []sharing.Inventory{big, small}, capability: "memory=4000", says: `queue "team" uses 0 of 4000MiB volcano.sh/vgpu-memory: 5000MiB more is 1000MiB too much`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{groupIn("team", "g", 1), podOf("p", "g", asks{number: 1})}
			for _, inv := range c.nodes {
				objects = append(objects, nodeOf(t, inv))
			}
			w := newWorld(t, objects...)
			w.cache.AddQueueV1beta1(queueBelow(t, "team", "", c.capability))
			_, short := w.tried()
			if c.device == "" {
				checkTried(t, nil, short, "", map[string]string{"p": c.says})
				return
			}
			w.bound("p")
			if p := w.placement("p"); p.Containers[0].Shares[0].Device != c.device {
				t.Errorf("placed on %s, want %s", p.Containers[0].Shares[0].Device, c.device)
			}
		})
	}
}

// A node without a device that is small enough refuses in a way that evictions do not cure:
// Volcano is told of the smallest device of the cluster when it asks whether the queue has room.
func TestNobodyIsEvictedForADeviceThatTheQueueMayNotHave(t *testing.T) {
	busy := runningOn(t, podOf("busy", "other", asks{number: 1}), "n3", share("GPU-n3-0", 5000))
	w := newWorld(t, nodeOf(t, devices("n2", 1, 10000)), nodeOf(t, devices("n3", 1, 5000)), groupIn("default", "other", 1), busy,
		groupIn("team", "g", 1), podOf("p", "g", asks{number: 1}))
	w.cache.AddQueueV1beta1(queueBelow(t, "team", "", "memory=6000"))
	if placed, short := w.tried(); len(placed)+len(short) > 0 {
		t.Errorf("placed %v, short of %v: only nodes know", placed, short)
	}
	if got, want := w.status.message("p"), `queue "team" uses 0 of 6000MiB volcano.sh/vgpu-memory: 10000MiB more is 4000MiB too much`; !strings.Contains(got, want) {
		t.Errorf("the pod was told %q, want it to say %q", got, want)
	}
	ssn := w.open()
	defer framework.CloseSession(ssn)
	task := w.task(ssn, "p")
	if err := ssn.PrePredicateFn(task); err != nil {
		t.Fatal(err)
	}
	for node, curable := range map[string]bool{"n2": false, "n3": true} {
		if err := ssn.PredicateForPreemptAction(task, ssn.Nodes[node]); (err == nil) != curable {
			t.Errorf("node %s, preempting: %v", node, err)
		}
	}
}

func TestTheQuotaCountsWhatWasBoundBefore(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 4, 10000)), groupIn("team", "first", 1), podOf("a", "first", asks{number: 1}))
	w.cache.AddQueueV1beta1(queueBelow(t, "team", "", "memory=15000"))
	release := w.hold("a")
	w.schedule()
	w.create(groupIn("team", "second", 1), podOf("b", "second", asks{number: 1}))
	want := map[string]string{"b": `queue "team" uses 10000MiB of 15000MiB volcano.sh/vgpu-memory: 10000MiB more is 5000MiB too much`}
	placed, short := w.tried() // the bind is under way
	checkTried(t, without(placed, "a"), short, "", want)
	release()
	w.settled()
	w.restart()
	placed, short = w.tried() // a scheduler that knows annotations only
	checkTried(t, without(placed, "a"), short, "", want)
}

// without returns names but one.
func without(names []string, name string) []string {
	return slices.DeleteFunc(names, func(n string) bool { return n == name })
}

func TestALimitThatCannotBeMeantIsReportedOnTheQueueOnce(t *testing.T) {
	w := newWorld(t, nodeOf(t, devices("n1", 8, 81920)))
	w.cache.AddQueueV1beta1(queueBelow(t, "team", "", "memory=20Gi cores=-1 number=4"))
	guaranteed := queueBelow(t, "other", "", "")
	guaranteed.Spec.Guarantee.Resource, guaranteed.Spec.Deserved = amountsOf(t, "memory=10Gi"), amountsOf(t, "cores=500m")
	w.cache.AddQueueV1beta1(guaranteed)
	for range 5 {
		w.explained()
	}
	said := w.report.all()
	slices.Sort(said)
	want := []string{"Queue other: QueueLimitDoubtful: deserved volcano.sh/vgpu-cores: 500m", "Queue other: QueueLimitDoubtful: guarantee volcano.sh/vgpu-memory: 10Gi",
		"Queue team: QueueLimitDoubtful: capability volcano.sh/vgpu-cores: -1", "Queue team: QueueLimitDoubtful: capability volcano.sh/vgpu-memory: 20Gi"}
	if len(said) != len(want) {
		t.Fatalf("reported %q", said)
	}
	for i := range want {
		if !strings.HasPrefix(said[i], want[i]) {
			t.Errorf("reported %q, want %q", said[i], want[i])
		}
	}
}
