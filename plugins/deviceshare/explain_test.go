// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"volcano.sh/apis/pkg/apis/scheduling"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/actions/enqueue"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/cache"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/metrics"
	"volcano.sh/volcano/pkg/scheduler/plugins"
	"volcano.sh/volcano/pkg/scheduler/plugins/capacity"
	"volcano.sh/volcano/pkg/scheduler/plugins/overcommit"
	"volcano.sh/volcano/pkg/scheduler/plugins/predicates"
	"volcano.sh/volcano/pkg/scheduler/plugins/proportion"
	pluginutil "volcano.sh/volcano/pkg/scheduler/plugins/util"

	"deviceshare/plugins/deviceshare/waiting"
	"deviceshare/plugins/deviceshare/waiting/news"
	"deviceshare/sharing/wire"
)

// with adds plugins of Volcano behind ours, in one tier with it.
func (w *world) with(names ...string) {
	for name, build := range map[string]framework.PluginBuilder{
		"overcommit": overcommit.New, "proportion": proportion.New, "capacity": capacity.New, "predicates": predicates.New,
	} {
		framework.RegisterPluginBuilder(name, build)
	}
	last := &w.tiers[len(w.tiers)-1]
	for _, name := range names {
		o := conf.PluginOption{Name: name}
		plugins.ApplyPluginConfDefaults(&o)
		last.Plugins = append(last.Plugins, o)
	}
}

// explained runs a session with the actions of the shipped configuration that matter here.
func (w *world) explained() {
	ssn := w.open()
	conf.EnabledActionMap = map[string]bool{"enqueue": true, "allocate": true}
	for _, a := range []framework.Action{enqueue.New(), allocate.New()} {
		explainedAction{a, w.store}.Execute(ssn)
	}
	framework.CloseSession(ssn)
}

// As Volcano's scheduler does at its start: plugin predicates counts by these.
func TestMain(m *testing.M) {
	metrics.InitKubeSchedulerRelatedMetrics()
	m.Run()
}

// heldGroup is a group that Volcano has yet to let in.
func heldGroup(name string, members int32, number int64) *schedulingv1beta1.PodGroup {
	g := groupOf(name, members)
	g.Status.Phase = schedulingv1beta1.PodGroupPending
	g.Spec.MinResources = &corev1.ResourceList{wire.ResourceNumber: *resource.NewQuantity(number, resource.DecimalSI)}
	return g
}

// small is devices with two slots each.
func small(t testing.TB, name string, n int) *corev1.Node {
	inv := devices(name, n, 10000)
	for i := range inv.Devices {
		inv.Devices[i].MaxShares = 2
	}
	return nodeOf(t, inv)
}

func (w *world) queue(name string, state schedulingv1beta1.QueueState, capability int64) {
	q := &schedulingv1beta1.Queue{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: schedulingv1beta1.QueueSpec{Weight: 1},
		Status: schedulingv1beta1.QueueStatus{State: state},
	}
	if capability > 0 {
		q.Spec.Capability = corev1.ResourceList{wire.ResourceNumber: *resource.NewQuantity(capability, resource.DecimalSI)}
	}
	w.cache.AddQueueV1beta1(q)
}

// waitCase is a world with a pod that waits, what it is told, and how its wait is counted.
type waitCase struct {
	cause   news.Cause
	build   func(t *testing.T) *world
	pod     string
	want    []string
	without string
}

// promisedQueue is a queue of one device that was promised to a job which fits nowhere.
func promisedQueue(t *testing.T, plugins ...string) *world {
	t.Helper()
	held, let := heldGroup("g", 1, 1), groupIn("narrow", "h", 1)
	held.Spec.Queue = "narrow"
	let.Spec.MinResources = &corev1.ResourceList{wire.ResourceNumber: resource.MustParse("1")}
	w := newWorld(t, small(t, "n1", 2), podOf("p", "g", asks{number: 1, memory: 1000}), podOf("other", "h", asks{number: 1, memory: 20000}))
	w.with(plugins...)
	w.queue("narrow", schedulingv1beta1.QueueStateOpen, 1)
	w.create(held, let)
	return w
}

// heldBackCases are jobs that are not let in.
func heldBackCases() map[string]waitCase {
	one := asks{number: 1, memory: 1000}
	return map[string]waitCase{
		"overcommit holds the job back": {
			cause: news.Enqueue,
			build: func(t *testing.T) *world {
				w := newWorld(t, small(t, "n1", 1), heldGroup("g", 1, 3), podOf("p", "g", asks{number: 3, memory: 1000}))
				w.with("overcommit")
				return w
			},
			pod: "p", want: []string{"held back before any node is looked at", "plugin overcommit lets jobs ask for 1.2 times",
				"the job asks for 3 of " + wire.ResourceNumber + ", 0 of 2.4 are used or promised", "1 node(s) where 1/1 devices fit container \"c0\", 3 wanted"},
		},
		"jobs that were let in before are promised the room": {
			cause: news.Enqueue,
			build: func(t *testing.T) *world {
				let := groupOf("h", 1)
				let.Spec.MinResources = &corev1.ResourceList{wire.ResourceNumber: resource.MustParse("2")}
				w := newWorld(t, small(t, "n1", 1), let, podOf("other", "h", asks{number: 2, memory: 20000}), heldGroup("g", 1, 1), podOf("p", "g", one))
				w.with("overcommit")
				return w
			},
			pod: "p", want: []string{"the job asks for 1 of " + wire.ResourceNumber + ", 2 of 2.4 are used or promised", "1 node(s) have room now"},
		},
		"the queue's capability holds the job back": {
			cause: news.Enqueue,
			build: func(t *testing.T) *world { return promisedQueue(t, "overcommit", "proportion") },
			pod:   "p", want: []string{"queue narrow has no room for it (plugin proportion)", "the job asks for 1 of " + wire.ResourceNumber,
				"1 of the queue's capability of 1 are used or promised", "1 node(s) have room"},
		},
		"plugin capacity counts it": {
			cause: news.Enqueue,
			build: func(t *testing.T) *world { return promisedQueue(t, "capacity") },
			pod:   "p", want: []string{"queue narrow has no room for it (plugin capacity)"},
		},
		"the job asks for more devices than its queue may ever have": {
			cause: news.Quota,
			build: func(t *testing.T) *world {
				g := heldGroup("g", 1, 2)
				g.Spec.Queue = "narrow"
				w := newWorld(t, small(t, "n1", 2), podOf("p", "g", asks{number: 2, memory: 1000}))
				w.with("capacity")
				w.queue("narrow", schedulingv1beta1.QueueStateOpen, 1)
				w.create(g)
				return w
			},
			pod: "p", want: []string{`queue "narrow" uses 0 of 1 volcano.sh/vgpu-number: 2 more is 1 too much`},
		},
		"the queue is closed": {
			cause: news.Enqueue,
			build: func(t *testing.T) *world {
				g := heldGroup("g", 1, 1)
				g.Spec.Queue = "shut"
				w := newWorld(t, small(t, "n1", 1), podOf("p", "g", one))
				w.with("overcommit", "proportion")
				w.queue("shut", schedulingv1beta1.QueueStateClosed, 0)
				w.create(g)
				return w
			},
			pod: "p", want: []string{"queue shut is not open but closed"},
		},
	}
}

// unreadableCases are jobs of which nobody knows what they ask for.
func unreadableCases() map[string]waitCase {
	return map[string]waitCase{
		"the number is missing and the job is held back": {
			cause: news.Request,
			build: func(t *testing.T) *world {
				w := newWorld(t, small(t, "n1", 1), heldGroup("g", 1, 9), podOf("p", "g", asks{memory: 1000}))
				w.with("overcommit")
				return w
			},
			pod: "p", want: []string{"its device request cannot be read", wire.ResourceNumber + ": 1"}, without: "held back",
		},
		"the configuration is not known and the job is held back": {
			cause: news.Settings,
			build: func(t *testing.T) *world {
				w := newWorld(t, small(t, "n1", 1), heldGroup("g", 1, 9), podOf("p", "g", asks{number: 1, memory: 1000}))
				w.with("overcommit")
				w.store.settings.Store(nil)
				w.store.Withhold("ConfigMap kube-system/x: nvidia.a: is no number")
				return w
			},
			pod: "p", want: []string{"has not read the device configuration", "nvidia.a: is no number"},
		},
	}
}

// claimsOf gives a pod claims.
func claimsOf(p *corev1.Pod, names ...string) *corev1.Pod {
	for _, name := range names {
		p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, corev1.PodResourceClaim{Name: name, ResourceClaimTemplateName: &name})
	}
	return p
}

// claimCases are pods with claims that nobody allocates.
func claimCases() map[string]waitCase {
	const what = "this scheduler allocates no resource claims (spec.resourceClaims: nic, gpu) without predicate.DynamicResourceAllocationEnable: true among the arguments of its plugin predicates"
	build := func(a asks) func(t *testing.T) *world {
		return func(t *testing.T) *world {
			w := newWorld(t, small(t, "n1", 1), groupOf("g", 1), claimsOf(podOf("p", "g", a), "nic", "gpu"))
			w.with("predicates")
			return w
		}
	}
	return map[string]waitCase{
		"claims that nobody allocates":            {cause: news.Request, build: build(asks{}), pod: "p", want: []string{what}},
		"claims that nobody allocates, and a GPU": {cause: news.Request, build: build(asks{number: 1, memory: 1000}), pod: "p", want: []string{what}},
	}
}

// gangCases are gangs of which some pods fit.
func gangCases() map[string]waitCase {
	one := asks{number: 1, memory: 1000}
	return map[string]waitCase{
		"the gang has too few pods": {
			cause: news.Gang,
			build: func(t *testing.T) *world {
				return newWorld(t, small(t, "n1", 1), groupOf("g", 3), podOf("p", "g", one))
			},
			pod: "p", want: []string{"the gang has 1 of the 3 pods it needs to start"},
		},
		"one pod of the gang does not fit": {
			cause: news.Nodes,
			build: func(t *testing.T) *world {
				return newWorld(t, small(t, "n1", 1), groupOf("g", 2), podOf("a", "g", one), podOf("b", "g", asks{number: 1, memory: 20000}))
			},
			pod: "b", want: []string{"1 node(s) where 0/1 devices fit", "1 short of free memory (NotEnoughMemory), and it would not fit the empty node. Of the 2 pods the gang needs to start, 1 fit."},
		},
		"the others of the gang do not fit": {
			cause: news.Gang,
			build: func(t *testing.T) *world {
				return newWorld(t, small(t, "n1", 1), groupOf("g", 2), podOf("a", "g", one), podOf("b", "g", asks{number: 1, memory: 20000}))
			},
			pod: "a", want: []string{"can possibly be assigned to n1, once minAvailable is satisfied"},
		},
		"the gang was given up before the pod's turn": {
			cause: news.Gang,
			build: func(t *testing.T) *world {
				big := asks{number: 1, memory: 20000}
				return newWorld(t, small(t, "n1", 1), groupOf("g", 2), podOf("a", "g", big), podOf("b", "g", one))
			},
			pod: "b", want: []string{"the gang needs 2 pods to start, 0 fit: see the events of its other pods"},
		},
		"another pod of its kind was looked at": {
			cause: news.Nodes,
			build: func(t *testing.T) *world {
				big := asks{number: 1, memory: 20000}
				a, b := podOf("a", "g", big), podOf("b", "g", big)
				for _, p := range []*corev1.Pod{a, b} {
					p.Annotations["volcano.sh/task-spec"] = "worker"
				}
				return newWorld(t, small(t, "n1", 1), groupOf("g", 1), a, b)
			},
			pod: "b", want: []string{"0/1 nodes are unavailable", "1 short of free memory (NotEnoughMemory)"}, without: "already predicated failed",
		},
	}
}

// nodeCases are pods that no node takes.
func nodeCases() map[string]waitCase {
	one := asks{number: 1, memory: 1000}
	return map[string]waitCase{
		"the devices are full": {
			cause: news.Nodes,
			build: func(t *testing.T) *world {
				return newWorld(t, small(t, "n1", 1), groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 20000}))
			},
			pod: "p", want: []string{"0/1 nodes are unavailable"},
		},
		"sums are short, and the devices say why": {
			cause: news.Nodes,
			build: func(t *testing.T) *world {
				inv := devices("n1", 1, 10000)
				inv.Devices[0].MaxShares = 1
				holder := runningOn(t, podOf("holder", "h", asks{number: 1, memory: 1000}), "n1", share(inv.Devices[0].ID, 1000))
				return newWorld(t, nodeOf(t, inv), groupOf("h", 1), holder, groupOf("g", 1), podOf("p", "g", one))
			},
			pod: "p", want: []string{"Insufficient " + wire.ResourceNumber, "Devices: 1 node(s) where 0/1 devices fit", "1 shared by as many containers as allowed (TooManyShares)"},
		},
		"the inventory of a node cannot be read": {
			cause: news.Nodes,
			build: func(t *testing.T) *world {
				n := small(t, "n1", 1)
				n.Annotations[wire.NodeInventory] = "{"
				return newWorld(t, n, groupOf("g", 1), podOf("p", "g", one))
			},
			pod: "p", want: []string{"1 the inventory of the node's devices cannot be read"},
		},
		"nodes are cordoned and tainted": {
			cause: news.Nodes,
			build: func(t *testing.T) *world {
				cordoned, tainted := small(t, "n1", 1), small(t, "n2", 1)
				cordoned.Spec.Unschedulable = true
				tainted.Spec.Taints = []corev1.Taint{{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}}
				w := newWorld(t, cordoned, tainted, small(t, "n3", 1), groupOf("g", 1), podOf("p", "g", asks{number: 1, memory: 20000}))
				w.with("predicates")
				return w
			},
			pod: "p", want: []string{"0/3 nodes are unavailable", "1 node(s) were unschedulable", "1 node(s) had untolerated taint",
				"1 node(s) where 0/1 devices fit"},
		},
	}
}

func TestEveryPodThatWaitsIsToldTheTrueReason(t *testing.T) {
	cases := heldBackCases()
	maps.Copy(cases, unreadableCases())
	maps.Copy(cases, claimCases())
	maps.Copy(cases, gangCases())
	maps.Copy(cases, nodeCases())
	maps.Copy(cases, quotaCases())
	maps.Copy(cases, neighbourCases())
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := c.build(t)
			w.explained()
			got := w.status.message(c.pod)
			t.Logf("told: %s", got)
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("told %q, want it to say %q", got, want)
				}
			}
			if counted := w.metrics(); counted[fmt.Sprintf("deviceshare_waiting_pods{queue=%q,reason=%q}", w.queueOf(c.pod), c.cause)] == 0 {
				t.Errorf("pod %s does not count as one that waits by reason %s: %v", c.pod, c.cause, counted)
			}
			if c.without != "" && strings.Contains(got, c.without) {
				t.Errorf("told %q, which says %q", got, c.without)
			}
		})
	}
}

// Volcano would take the reason of any pod of a gang for that of the group, another one in each
// session, and write it.
func TestTheGroupOfPodsThatWaitForDifferentThingsKeepsItsText(t *testing.T) {
	w := newWorld(t, small(t, "n1", 1), groupOf("g", 5), podOf("b", "g", asks{memory: 5}), podOf("a", "g", asks{cores: 5}),
		podOf("c", "g", asks{number: 1, memory: 20000}), podOf("d", "g", asks{number: 3, memory: 5}), podOf("e", "g", asks{number: 1, memory: 5}))
	texts := map[string]bool{}
	for range 20 {
		w.explained()
		texts[w.status.groups["g"]] = true
	}
	if len(texts) != 1 {
		t.Errorf("%d texts in 20 sessions: %q", len(texts), slices.Collect(maps.Keys(texts)))
	}
	for text := range texts {
		if !strings.Contains(text, "Origin reason is: pod a: ") {
			t.Errorf("the group is told %q", text)
		}
	}
}

// heldBackBy has the plugin see that another one says no to jobs: it returns what asks about one.
func heldBackBy(t testing.TB, p *Plugin, name string) func(*api.JobInfo) {
	t.Helper()
	yes := true
	tiers := []conf.Tier{{Plugins: []conf.PluginOption{{Name: name, EnabledJobEnqueued: &yes}}}}
	ssn := framework.OpenSession(cache.NewDefaultMockSchedulerCache(schedulerName), nil, nil)
	t.Cleanup(func() { framework.CloseSession(ssn) })
	ssn.Tiers = tiers
	ssn.AddJobEnqueueableFn(name, func(any) int { return pluginutil.Reject })
	p.witness = &waiting.Witness{Plugin: PluginName}
	p.witness.StandBy(ssn)
	return func(job *api.JobInfo) {
		if ssn.JobEnqueueable(job) {
			t.Fatalf("%s lets %s in", name, job.UID)
		}
	}
}

// waitingJobs is a session with n jobs that overcommit holds back, of ten shapes.
func waitingJobs(t testing.TB, n int) (*Plugin, *framework.Session) {
	t.Helper()
	node, pods := full(t, "n1")
	p := bare(t, infoOf(node, pods))
	ssn, _ := sessionOf(p.infos["n1"])
	ssn.Jobs, ssn.TotalResource = map[api.JobID]*api.JobInfo{}, api.NewResource(node.Status.Allocatable)
	ssn.Queues = map[api.QueueID]*api.QueueInfo{"default": {UID: "default", Name: "default", Queue: &scheduling.Queue{
		Status: scheduling.QueueStatus{State: scheduling.QueueStateOpen}}}}
	overcommits := heldBackBy(t, p, "overcommit")
	for i := range n {
		number := int64(60 + i%10)
		pod := podOf(fmt.Sprintf("p%d", i), fmt.Sprintf("g%d", i), asks{number: number, memory: 1000})
		job := api.NewJobInfo(api.JobID(fmt.Sprintf("ns/g%d", i)), api.NewTaskInfo(pod))
		job.Queue = "default"
		job.SetPodGroup(&api.PodGroup{PodGroup: scheduling.PodGroup{Spec: scheduling.PodGroupSpec{Queue: "default", MinMember: 1,
			MinResources: heldGroup("g", 1, number).Spec.MinResources}, Status: scheduling.PodGroupStatus{Phase: scheduling.PodGroupPending}}})
		ssn.Jobs[job.UID] = job
		overcommits(job)
	}
	p.jobs = ssn.Jobs
	return p, ssn
}

func TestPodsThatWaitForTheSameShareOneText(t *testing.T) {
	p, ssn := waitingJobs(t, 1000)
	p.explainWaiting(ssn)
	texts := map[*api.FitErrors]string{}
	for _, job := range ssn.Jobs {
		for _, f := range job.NodesFitErrors {
			texts[f] = f.Error()
		}
	}
	if len(texts) != 10 {
		t.Errorf("%d texts for ten shapes", len(texts))
	}
	for _, text := range texts {
		if !strings.Contains(text, "plugin overcommit") {
			t.Errorf("told %q", text)
		}
	}
	if n := p.store.waiting.Len(); n != 1000 {
		t.Errorf("%d of 1000 pods are remembered", n)
	}
}

func TestOtherNumbersAreToldWhenTheirTimeHasCome(t *testing.T) {
	p, ssn := waitingJobs(t, 1)
	now := int64(1000)
	p.store.now = func() time.Time { return time.Unix(now, 0) }
	told := func() (text string) {
		p.explained = false
		p.explainWaiting(ssn)
		for _, job := range ssn.Jobs {
			for _, f := range job.NodesFitErrors {
				text = f.Error()
			}
		}
		return text
	}
	first := told()
	ssn.TotalResource.ScalarResources[wire.ResourceNumber] /= 4
	if again := told(); again != first {
		t.Errorf("in the same second: told %q after %q", again, first)
	}
	now += 10
	if later := told(); later == first {
		t.Errorf("ten seconds later it is still told %q", later)
	}
	for _, q := range ssn.Queues {
		q.Queue.Status.State = scheduling.QueueStateClosed
	}
	told()
	now += 2
	if closed := told(); !strings.Contains(closed, "is not open but closed") {
		t.Errorf("other words that last were not told: %q", closed)
	}
}

// What a session pays for 5,000 pods that wait and for which nothing has changed.
func BenchmarkExplain5000WaitingPods(b *testing.B) {
	silence(b)
	p, ssn := waitingJobs(b, 5000)
	p.explainWaiting(ssn)
	b.ResetTimer()
	for range b.N {
		p.explained = false
		p.explainWaiting(ssn)
	}
}
