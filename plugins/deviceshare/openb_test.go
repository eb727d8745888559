// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	schedulermetrics "k8s.io/kubernetes/pkg/scheduler/metrics"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler"
	_ "volcano.sh/volcano/pkg/scheduler/actions"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/nodeorder"
	"deviceshare/sharing/sharingtest/trace"
	"deviceshare/sharing/wire"
)

// shipped is the scheduler's configuration as the chart installs it.
func shipped(t *testing.T) (actions []framework.Action, tiers []conf.Tier, configurations []conf.Configuration) {
	t.Helper()
	text, err := os.ReadFile("../../manifests/install/deviceshare.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, text2, found := strings.Cut(string(text), "volcano-scheduler.conf: |\n")
	if !found {
		t.Fatal("the manifest has no configuration of the scheduler")
	}
	text2, _, _ = strings.Cut(text2, "\n---")
	RegisterActions()
	actions, tiers, configurations, _, err = scheduler.UnmarshalSchedulerConf(strings.ReplaceAll("\n"+text2, "\n    ", "\n"))
	if err != nil || len(actions) == 0 || len(tiers) == 0 {
		t.Fatalf("%d actions, %d tiers: %v", len(actions), len(tiers), err)
	}
	return actions, tiers, configurations
}

// cycles places pods of a trace through Volcano's cycles, many in each.
type cycles struct {
	*world
	actions []framework.Action
	// next is how many pods arrived, refused how many of them went away again.
	next, refused int
	// applied are the Bindings that the API server has carried out.
	applied map[string]bool
}

const perCycle = 500

// newCycles makes a cluster whose nodes are named in the order given, which breaks ties.
func newCycles(t *testing.T, nodes []trace.Node) *cycles {
	t.Helper()
	return newCyclesOver(t, traceNodes(t, nodes)...)
}

// traceNodes are the nodes of a trace, named in the order given.
func traceNodes(t *testing.T, nodes []trace.Node) []runtime.Object {
	t.Helper()
	objects := make([]runtime.Object, 0, len(nodes))
	for i, n := range nodes {
		inv := devices(fmt.Sprintf("n%05d", i), n.Devices, 16384)
		for d := range inv.Devices {
			inv.Devices[d].Model, inv.Devices[d].MaxShares = n.Model, 20
		}
		node := nodeOf(t, inv)
		node.Status.Allocatable[corev1.ResourceCPU] = *resource.NewMilliQuantity(n.CPU, resource.DecimalSI)
		node.Status.Allocatable[corev1.ResourceMemory] = *resource.NewQuantity(n.Memory<<20, resource.BinarySI)
		node.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("1000")
		objects = append(objects, node)
	}
	return objects
}

// newCyclesOver makes a cluster of these objects, with the scheduler as it is installed.
func newCyclesOver(t *testing.T, objects ...runtime.Object) *cycles {
	t.Helper()
	silence(t)
	IgnoreSums(wire.ResourcePercentage)
	nodeorder.Register()
	c := &cycles{world: newWorld(t, objects...), applied: map[string]bool{}}
	c.answerWith(func(string) (bool, error) { return false, nil })
	c.cache.Recorder = &record.FakeRecorder{} // the world's fills up and then waits for a reader
	var configurations []conf.Configuration
	c.actions, c.tiers, configurations = shipped(t)
	c.world.actions = configurations
	for _, tier := range c.tiers {
		for _, o := range tier.Plugins {
			if o.Name == PluginName {
				c.args = o.Arguments
			}
		}
	}
	options.ServerOpts.PercentageOfNodesToFind = 100
	schedulermetrics.InitMetrics()
	return c
}

// pod makes the pod of a trace, and its group.
func (c *cycles) pod(p *trace.Pod) (*corev1.Pod, *schedulingv1beta1.PodGroup) {
	name := fmt.Sprintf("p%06d", c.next)
	c.next++
	pod := podOf(name, name, asks{})
	list := corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewMilliQuantity(p.CPU, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(p.Memory<<20, resource.BinarySI),
	}
	if p.Devices > 0 {
		z := int64(100)
		list[wire.ResourceNumber] = *resource.NewQuantity(int64(p.Devices), resource.DecimalSI)
		if p.Share < 1000 {
			z = int64(p.Share+9) / 10
			list[wire.ResourcePercentage] = *resource.NewQuantity(z, resource.DecimalSI)
		}
		list[wire.ResourceCores] = *resource.NewQuantity(z, resource.DecimalSI)
	}
	pod.Spec.Containers[0].Resources = corev1.ResourceRequirements{Limits: list, Requests: list}
	if len(p.Models) > 0 {
		pod.Annotations[wire.UserUseModels] = strings.Join(p.Models, ",")
	}
	group := groupOf(name, 1)
	group.Status.Phase = schedulingv1beta1.PodGroupPending
	return pod, group
}

// place lets pods arrive in one cycle and returns the thousandths of devices that they were
// given. Those that fit nowhere go away.
func (c *cycles) place(pods []trace.Pod) int {
	var objects []runtime.Object
	made := map[api.TaskID]*trace.Pod{}
	for i := range pods {
		pod, group := c.pod(&pods[i])
		made[api.TaskID(pod.UID)] = &pods[i]
		objects = append(objects, group, pod)
	}
	for chunk := range slices.Chunk(objects, atOnce) {
		c.create(chunk...)
	}
	ssn := c.open()
	c.runActions(ssn)
	given := 0
	var refused []*corev1.Pod
	for _, j := range ssn.Jobs {
		for uid, t := range j.Tasks {
			if made[uid] == nil {
				continue
			}
			if t.NodeName == "" {
				refused = append(refused, t.Pod)
			} else {
				given += made[uid].Asked()
			}
		}
	}
	framework.CloseSession(ssn)
	c.refused += len(refused)
	c.settle()
	c.drop(refused)
	return given
}

// runActions runs the shipped actions, as the command of the scheduler does.
func (c *cycles) runActions(ssn *framework.Session) {
	enableActions(c.actions)
	for _, a := range c.actions {
		c.store.MakingRoom(a).Execute(ssn)
	}
}

// atOnce is how many objects change at a time: the watches of the fake API server hold a hundred.
const atOnce = 20

// settle waits for the Bindings of a cycle, and then has the API server carry them out.
func (c *cycles) settle() {
	c.eventually("the pods are bound", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.bindings) == c.next-c.refused
	})
	var open []corev1.Binding
	for _, b := range c.bindings {
		if !c.applied[b.Name] {
			open, c.applied[b.Name] = append(open, b), true
		}
	}
	for chunk := range slices.Chunk(open, atOnce) {
		for i := range chunk {
			c.apply(&chunk[i], "ns")
		}
		for i := range chunk {
			c.eventually("the cache has the binding", func() bool {
				c.cache.Mutex.Lock()
				defer c.cache.Mutex.Unlock()
				t := c.cache.Nodes[chunk[i].Target.Name].Tasks[api.TaskID("ns/"+chunk[i].Name)]
				return t != nil && t.Status == api.Bound
			})
		}
	}
}

// drop deletes the pods that fit nowhere.
func (c *cycles) drop(pods []*corev1.Pod) {
	for chunk := range slices.Chunk(pods, atOnce) {
		for _, pod := range chunk {
			_ = c.client.CoreV1().Pods(pod.Namespace).Delete(context.Background(), pod.Name, metav1.DeleteOptions{})
			_ = c.cache.VCClient().SchedulingV1beta1().PodGroups(pod.Namespace).Delete(context.Background(), pod.Name, metav1.DeleteOptions{})
		}
		for _, pod := range chunk {
			c.eventually("the cache has forgotten the pod", func() bool {
				c.cache.Mutex.Lock()
				defer c.cache.Mutex.Unlock()
				j := c.cache.Jobs[api.JobID("ns/"+pod.Name)]
				return j == nil || len(j.Tasks) == 0
			})
		}
	}
}

// throughVolcano returns the devices allocated, in percent of all.
func throughVolcano(t *testing.T, nodes, order []trace.Node, arrivals []trace.Pod) float64 {
	c := newCycles(t, order)
	given := 0
	for from := 0; from < len(arrivals); from += perCycle {
		given += c.place(arrivals[from:min(from+perCycle, len(arrivals))])
		t.Logf("%d of %d pods, %.2f %%", min(from+perCycle, len(arrivals)), len(arrivals), 100*float64(given)/float64(trace.Capacity(nodes)))
	}
	return 100 * float64(given) / float64(trace.Capacity(nodes))
}

// percent runs a published rule on the same arrivals.
func percent(rule trace.Rule, nodes []trace.Node, arrivals []trace.Pod) float64 {
	given := 0
	for i := range arrivals {
		if rule.Take(&arrivals[i]) {
			given += arrivals[i].Asked()
		}
	}
	return 100 * float64(given) / float64(trace.Capacity(nodes))
}

// The shipped configuration lets no plugin of Volcano undo what the policy chooses.
func TestTheShippedConfigurationPlacesMoreThanFirstFit(t *testing.T) {
	nodes, pods := trace.Small()
	ours, first := 0.0, 0.0
	for seed := range uint64(3) {
		r := rand.New(rand.NewPCG(seed, 42))
		order, arrivals := trace.Shuffled(nodes, r), trace.Arrivals(pods, trace.Capacity(nodes), r)
		ours += throughVolcano(t, nodes, order, arrivals)
		first += percent(trace.NewFirstFit(order), nodes, arrivals)
	}
	if t.Logf("%.2f %%, first fit %.2f %%", ours/3, first/3); ours <= first {
		t.Errorf("%.2f %% through Volcano, first fit %.2f %%", ours/3, first/3)
	}
}

// TestOpenb prints the table of docs/benchmarks.md from the folder of a trace, through Volcano's
// cycles. It is `make openb`.
func TestOpenb(t *testing.T) {
	dir := os.Getenv("DEVICESHARE_OPENB")
	if dir == "" {
		t.Skip("needs the trace: make openb DATA=DIR")
	}
	seeds, err := strconv.ParseUint(os.Getenv("DEVICESHARE_OPENB_CYCLES"), 10, 32)
	if err != nil {
		t.Fatalf("how many seeds? DEVICESHARE_OPENB_CYCLES: %v", err)
	}
	part, err := strconv.Atoi(os.Getenv("DEVICESHARE_OPENB_PART"))
	if err != nil || part < 1 {
		t.Fatalf("one of how many nodes? DEVICESHARE_OPENB_PART: %v", err)
	}
	nodes, workloads, err := trace.Load(dir, os.Getenv("DEVICESHARE_OPENB_ONLY"))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range workloads {
		got := map[string][]float64{}
		for seed := range seeds {
			r := rand.New(rand.NewPCG(seed, 42))
			order := trace.Shuffled(nodes, r)
			nodes := order[:len(order)/part]
			order, arrivals := nodes, trace.Arrivals(w.Pods, trace.Capacity(nodes), r)
			got["first-fit"] = append(got["first-fit"], percent(trace.NewFirstFit(order), nodes, arrivals))
			got["fgd"] = append(got["fgd"], percent(trace.NewFGD(order, w.Pods), nodes, arrivals))
			got["fragmentation-volcano"] = append(got["fragmentation-volcano"], throughVolcano(t, nodes, order, arrivals))
		}
		for _, name := range []string{"first-fit", "fgd", "fragmentation-volcano"} {
			mean, sd := trace.Mean(got[name])
			fmt.Printf("%s %s %.2f %.2f\n", w.Name, name, mean, sd)
		}
	}
}
