// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins"
	"volcano.sh/volcano/pkg/scheduler/plugins/capacity"
	"volcano.sh/volcano/pkg/scheduler/plugins/conformance"
	"volcano.sh/volcano/pkg/scheduler/plugins/gang"
	"volcano.sh/volcano/pkg/scheduler/plugins/proportion"

	"deviceshare/plugins/deviceshare/holds"
)

// reclaims is a cluster of nodes with two devices, in which pods of queue "mine" wait and those of
// other queues run.
type reclaims struct {
	nodes int
	// beside is the plugin that orders queues, proportion if it is "": as shipped.
	beside string
	// queues are "name" or "name<parent", and what they have: weight=N, deserved and guarantee
	// of number and memory.
	queues map[string]string
	// running are pods "name node device" with the MiB of a device, 0 for all, by their group.
	// A group belongs to the queue of its name up to a dash, and a gang has a number behind it.
	running map[string][]string
	wants   []asks
	// evicted are those that leave; the pods are bound then, and only then.
	evicted []string
	told    string
}

// asShipped has plugins gang and proportion leave to the planner who is reclaimed, beside plugin
// conformance.
func asShipped(l *lab) {
	framework.RegisterPluginBuilder(conformance.PluginName, conformance.New)
	o := conf.PluginOption{Name: conformance.PluginName}
	plugins.ApplyPluginConfDefaults(&o)
	l.tiers[0].Plugins = append(l.tiers[0].Plugins, o)
	off := false
	for i := range l.tiers[0].Plugins {
		switch o := &l.tiers[0].Plugins[i]; o.Name {
		case gang.PluginName:
			o.EnabledPreemptable, o.EnabledReclaimable = &off, &off
		case proportion.PluginName:
			o.EnabledReclaimable = &off
		}
	}
}

// queueFrom makes a queue of a name, with a parent, and a text.
func queueFrom(t *testing.T, name, text string) *schedulingv1beta1.Queue {
	t.Helper()
	name, parent, _ := strings.Cut(name, "<")
	q := queueBelow(t, name, parent, "")
	q.Spec.Weight = 1
	amounts := map[string]string{} // by list
	for _, field := range strings.Fields(text) {
		key, value, _ := strings.Cut(field, "=")
		list, resource, _ := strings.Cut(key, ".")
		switch list {
		case "weight":
			fmt.Sscan(value, &q.Spec.Weight)
		case "reclaimable":
			no := false
			q.Spec.Reclaimable = &no
		default:
			amounts[list] += " " + resource + "=" + value
		}
	}
	q.Spec.Deserved, q.Spec.Guarantee.Resource = amountsOf(t, amounts["deserved"]), amountsOf(t, amounts["guarantee"])
	return q
}

func (c *reclaims) lab(t *testing.T) *lab {
	t.Helper()
	objects := []runtime.Object{groupIn("mine", "new", int32(len(c.wants)))}
	for n := range c.nodes {
		objects = append(objects, nodeOf(t, devices(fmt.Sprint("n", n+1), 2, 10000)))
	}
	for group, pods := range c.running {
		name, gang, _ := strings.Cut(group, "/")
		members, class := int32(0), ""
		fmt.Sscan(gang, &members)
		queue, suffix, _ := strings.Cut(name, "-")
		if suffix == "high" || suffix == "low" {
			class = suffix
		}
		g := groupIn(queue, name, members)
		g.Spec.PriorityClassName = class
		objects = append(objects, g)
		for _, text := range pods {
			var pod, node string
			var device int
			var memory int64
			fmt.Sscan(text, &pod, &node, &device, &memory)
			objects = append(objects, on(t, pod, name, node, device, memory))
		}
	}
	for i, want := range c.wants {
		objects = append(objects, podOf([]string{"new", "new1", "new2"}[i], "new", want))
	}
	l := newLab(t, objects...)
	for name, text := range c.queues {
		l.cache.AddQueueV1beta1(queueFrom(t, name, text))
	}
	if c.beside == "" {
		c.beside = proportion.PluginName
	}
	l.oneTier(c.beside)
	asShipped(l)
	l.world.actions = []conf.Configuration{}
	return l
}

func (c *reclaims) run(t *testing.T) {
	t.Helper()
	l := c.lab(t)
	l.requireEvicted(8, c.evicted)
	if got := l.status.message("new"); !strings.Contains(got, c.told) {
		t.Errorf("told %q, want %q", got, c.told)
	}
}

// fourWhole are pods with a whole device each. Those of one node are less important: of plans that
// cost the same, any may be taken.
var fourWhole = map[string][]string{"theirs-low": {"a n1 0", "b n1 1"}, "theirs-high": {"c n2 0", "d n2 1"}}

func TestAQueueGetsItsShareByWeightBack(t *testing.T) {
	for name, c := range map[string]reclaims{
		"a whole device of ten shares": {
			running: map[string][]string{"theirs-low": {"a n1 0", "b n1 1", "c n2 0"}, "theirs-high": {"d n2 1"}},
			wants:   []asks{{number: 1}}, queues: map[string]string{"mine": "", "theirs": "reclaimable=no"},
		},
		"two whole devices of a node": {
			running: map[string][]string{"theirs-low": {"a n1 0", "c n2 0", "d n2 1"}, "theirs-high": {"b n1 1"}},
			wants:   []asks{{number: 2}}, evicted: []string{"c", "d"},
		},
		"memory that is named": {
			running: map[string][]string{"theirs-low": {"a n1 0 9000", "b n1 1 9000"}, "theirs-high": {"c n2 0 9000", "d n2 1 9000"}},
			wants:   []asks{{number: 1, memory: 8000}}, evicted: []string{"a"},
		},
		"a gang over two nodes": {
			running: map[string][]string{"theirs-high": {"a n1 0", "c n2 0"}, "theirs-low": {"b n1 1", "d n2 1"}},
			wants:   []asks{{number: 1}, {number: 1}}, evicted: []string{"b", "d"},
		},
		"a gang of more than its share gets nothing": {
			running: fourWhole, wants: []asks{{number: 1}, {number: 1}, {number: 1}},
			told: `Other queues give nothing up: queue "mine" has 0 of volcano.sh/vgpu-memory, and deserves 20000MiB; 30000MiB more is too much`,
		},
		"by weight": {
			running: fourWhole, queues: map[string]string{"mine": "weight=3", "theirs": ""},
			wants: []asks{{number: 1}, {number: 1}, {number: 1}}, evicted: []string{"a", "b", "c"},
		},
		"the least important pod of those who have too much leaves": {
			running: map[string][]string{"theirs-high": {"a n1 0", "b n1 1", "c n2 0"}, "theirs-low": {"d n2 1"}},
			wants:   []asks{{number: 1}}, evicted: []string{"d"},
		},
		"the queue that has the most too much gives": {
			nodes: 3, queues: map[string]string{"mine": "", "theirs": "", "others": ""},
			running: map[string][]string{
				"theirs": {"a n1 0", "b n1 1"}, "theirs-high": {"c n2 0", "g n2 1 9999"}, "others": {"e n3 0", "f n3 1"}},
			wants: []asks{{number: 1}}, evicted: []string{"a"},
		},
		"a gang leaves as a whole, if no single pod would do": {
			running: map[string][]string{"theirs-g/2": {"a n1 0", "b n1 1"}, "theirs-high": {"c n2 0", "d n2 1"}},
			wants:   []asks{{number: 1}, {number: 1}}, evicted: []string{"a", "b"},
		},
		"a queue that is guaranteed all of it keeps it": {
			queues:  map[string]string{"mine": "", "theirs": "guarantee.memory=40000"},
			running: fourWhole, wants: []asks{{number: 1}},
			told: `that the guarantees of other queues leave it`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.nodes == 0 {
				c.nodes = 2
			}
			if c.queues == nil {
				c.queues = map[string]string{"mine": "", "theirs": ""}
			}
			c.run(t)
		})
	}
}

func TestAQueueGetsWhatItDeservesBack(t *testing.T) {
	for name, c := range map[string]reclaims{
		"in real amounts, though whole devices are written without": {
			queues:  map[string]string{"mine": "deserved.memory=20000 deserved.number=9", "theirs": "deserved.memory=20000 deserved.number=2"},
			running: fourWhole, wants: []asks{{number: 2}}, evicted: []string{"a", "b"},
		},
		"no more than it deserves": {
			queues:  map[string]string{"mine": "deserved.memory=10000 deserved.number=9", "theirs": "deserved.memory=20000 deserved.number=2"},
			running: fourWhole, wants: []asks{{number: 2}},
			told: `Other queues give nothing up: queue "mine" has 0 of volcano.sh/vgpu-memory, and deserves 10000MiB; 20000MiB more is too much`,
		},
		"not from a queue that has no more than it deserves": {
			nodes:   3,
			queues:  map[string]string{"mine": "deserved.number=2", "theirs": "deserved.number=4", "others": "deserved.number=1"},
			running: map[string][]string{"theirs": {"a n1 0", "b n1 1", "c n2 0", "d n2 1"}, "others-high": {"e n3 0", "f n3 1"}},
			wants:   []asks{{number: 1}}, evicted: []string{"e"},
		},
		"from a queue that was told nothing": {
			queues:  map[string]string{"mine": "deserved.number=2", "theirs": ""},
			running: fourWhole, wants: []asks{{number: 2}}, evicted: []string{"a", "b"},
		},
		"below queues that have what they deserve, among each other": {
			queues: map[string]string{
				"top": "deserved.number=4", "mine<top": "deserved.number=2", "theirs<top": "deserved.number=2", "others": "deserved.number=1",
			},
			running: fourWhole, wants: []asks{{number: 1}}, evicted: []string{"a"},
		},
		"not beyond what the queue above deserves": {
			queues: map[string]string{
				"top": "deserved.number=1", "mine<top": "deserved.number=2", "sister<top": "deserved.number=1", "theirs": "deserved.number=2",
			},
			running: map[string][]string{"theirs": {"a n1 0", "b n1 1", "c n2 0"}, "sister": {"d n2 1"}}, wants: []asks{{number: 1}},
			told: `Other queues give nothing up: queue "top" has 1 of volcano.sh/vgpu-number, and deserves 1; 1 more is too much`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if c.nodes == 0 {
				c.nodes = 2
			}
			c.beside = capacity.PluginName
			c.run(t)
		})
	}
}

// Plugin overcommit keeps a job out until there is room, and a controller makes its pods when it is
// let in.
func TestOvercommitLetsInAJobWithoutPodsForWhichQueuesGivePodsUp(t *testing.T) {
	for name, c := range map[string]struct {
		want asks
		in   bool
	}{
		"a share":                  {asks{number: 1, memory: 9000}, true},
		"more than half of it all": {asks{number: 3, memory: 9000}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := reclaims{nodes: 2, queues: map[string]string{"mine": "", "theirs": ""}, running: map[string][]string{
				"theirs": {"a n1 0 9900", "b n1 1 9900", "c n2 0 9900", "d n2 1 9900"}}}
			l := r.lab(t)
			g := wants(groupIn("mine", "later", 1), c.want)
			list := *g.Spec.MinResources
			list["volcano.sh/vgpu-memory"] = *resource.NewQuantity(c.want.number*c.want.memory, resource.DecimalSI)
			g.Status.Phase = schedulingv1beta1.PodGroupPending
			l.create(g)
			for range 3 {
				l.tick()
			}
			now, err := l.cache.VCClient().SchedulingV1beta1().PodGroups("ns").Get(t.Context(), "later", metav1.GetOptions{})
			if err != nil || (now.Status.Phase == schedulingv1beta1.PodGroupInqueue) != c.in {
				t.Fatalf("phase %v, want let in: %v (%v)", now.Status.Phase, c.in, err)
			}
			if c.in {
				l.create(podOf("late", "later", c.want))
				if took := l.ticksUntilBound("late", 10); took == 10 || len(l.evictions()) != 1 {
					t.Errorf("bound after %d s, evicted %v", took, l.evictions())
				}
			}
		})
	}
}

// Pods of three queues arrive at random, and whoever is evicted is made again. When nobody arrives
// any more, the queues come to rest, and whoever left made room for a pod that was bound.
func TestQueuesThatTakeFromEachOtherComeToRest(t *testing.T) {
	seeds := uint64(20)
	if testing.Short() {
		seeds = 4
	}
	evictions := 0
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 3))
		c := reclaims{nodes: 3, queues: map[string]string{"mine": "weight=2", "theirs": "", "others": ""}}
		if seed%2 == 1 {
			c.beside = capacity.PluginName
			c.queues = map[string]string{"mine": "deserved.number=3", "theirs": "deserved.number=2 deserved.memory=20000", "others": "deserved.number=1"}
		}
		h := &queueHistory{lab: c.lab(t), random: r, asked: map[string]bool{}, wishes: map[string]seenAt{}, bound: map[string]seenAt{}, arrived: map[string]int{}}
		for second := range 40 {
			if queue := []string{"theirs", "others", "mine"}[r.IntN(1+second/14)]; h.arrived[queue] < 6 {
				h.arrive(queue)
			}
			h.tick()
			h.observe()
		}
		for range 60 {
			h.tick()
			h.observe()
		}
		before := len(h.asked)
		for range 40 {
			h.tick()
			h.observe()
		}
		if n := len(h.asked) - before; n > 0 {
			t.Errorf("seed %d: %d pods were told to leave long after the last one had come", seed, n)
		}
		for wish := range h.wishes {
			if !h.wasServed(wish) {
				t.Errorf("seed %d: pods left node %s for %s, which was not bound", seed, h.wishes[wish].node, wish)
			}
		}
		if evictions += len(h.asked); t.Failed() {
			return
		}
	}
	if evictions < int(seeds) {
		t.Errorf("%d evictions: the test shows little", evictions)
	}
	t.Logf("%d evictions", evictions)
}

// queueHistory remembers who left for whom, and who was bound where and when.
type queueHistory struct {
	*lab
	random        *rand.Rand
	names         int
	asked         map[string]bool
	wishes, bound map[string]seenAt
	arrived       map[string]int
}

// seenAt is a node, and when something was seen of it.
type seenAt struct {
	node   string
	second int64
}

// wasServed reports whether a pod was bound for which others left, or a more important one of its
// queue that took its place.
func (h *queueHistory) wasServed(wish string) bool {
	at := h.wishes[wish]
	for pod, bound := range h.bound {
		isSister := strings.TrimRight(groupNameOf(pod), "0123456789") == strings.TrimRight(groupNameOf(wish), "0123456789")
		if pod == wish || isSister && bound.node == at.node && bound.second >= at.second {
			return true
		}
	}
	return false
}

// arrive makes a pod, or a gang of two, that is made again whenever it ends.
func (h *queueHistory) arrive(queue string) {
	h.names++
	h.arrived[queue]++
	group, members := fmt.Sprintf("%s%d", queue, h.names), []int{1, 1, 2}[h.random.IntN(3)]
	want := []asks{{number: 1}, {number: 2}, {number: 1, memory: 4000}, {number: 1, memory: 9000}}[h.random.IntN(4)]
	g := groupIn(queue, group, int32(members))
	g.Spec.PriorityClassName = []string{"", "low", "high"}[h.random.IntN(3)]
	h.create(g)
	for i := range members {
		pod := withGrace(podOf(fmt.Sprintf("%sx%d", group, i), group, want), int64(h.random.IntN(4)))
		h.mu.Lock()
		h.replaced[pod.Name] = true
		h.mu.Unlock()
		h.create(pod)
	}
}

// observe notes who was asked to leave, and who was bound.
func (h *queueHistory) observe() {
	h.t.Helper()
	for _, pod := range h.pods() {
		if _, known := h.bound[pod.Name]; pod.Spec.NodeName != "" && !known {
			h.bound[pod.Name] = seenAt{pod.Spec.NodeName, h.seconds.Load()}
		}
		for _, c := range pod.Status.Conditions {
			if reason, ok := holds.ParseReason(c.Message); ok && c.Type == corev1.DisruptionTarget {
				h.asked[pod.Name] = true
				h.wishes[strings.TrimPrefix(reason.For, "ns/")] = seenAt{reason.Node, h.seconds.Load()}
			}
		}
	}
}
