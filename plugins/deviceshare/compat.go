// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"context"
	"iter"
	"sync"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"
	k8sframework "k8s.io/kubernetes/pkg/scheduler/framework"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/cache"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	pluginutil "volcano.sh/volcano/pkg/scheduler/plugins/util"
	"volcano.sh/volcano/pkg/scheduler/util"

	"deviceshare/plugins/deviceshare/arguments"
	"deviceshare/plugins/deviceshare/waiting"
	"deviceshare/sharing/worth"
)

// This file holds what is different in other versions of Volcano. It is written
// for v1.14.1.

// PluginName is the name of the plugin in the scheduler's configuration.
const PluginName = arguments.PluginName

// cycleState is what Volcano hands to SetupBindContextExtension.
type cycleState = k8sframework.CycleState

// Register makes the builder known under PluginName. The last registration of a
// name wins, so it must run after Volcano's plugins were imported.
func Register(build framework.PluginBuilder) {
	framework.RegisterPluginBuilder(PluginName, build)
}

// RegisterBinder makes Volcano bind every pod through b. It must run before the
// scheduler's cache is made.
func RegisterBinder(b cache.Binder) { cache.RegisterBindMethod(b) }

// IgnoreSums keeps resource names without a meaningful sum out of Volcano's
// accounting. It must run before the first pod is seen, since pods are read once.
func IgnoreSums(names ...string) { api.IgnoredDevicesList.Append(names...) }

// registerCallbacks adds what the plugin does in a session.
func (p *Plugin) registerCallbacks(ssn *framework.Session) {
	ssn.AddJobEnqueueableFn(PluginName, func(job any) int {
		if j, ok := job.(*api.JobInfo); ok {
			p.reportTooLarge(j)
		}
		return pluginutil.Abstain
	})
	ssn.AddPrePredicateFn(PluginName, p.prePredicate)
	ssn.AddPredicateFn(PluginName, p.predicate)
	ssn.AddNodeOrderFn(PluginName, p.nodeOrder)
	ssn.AddPreemptableFn(PluginName, asEvictableFn(ssn.Preemptable, p.unlessPlanned(p.choosePreemptVictims)))
	ssn.AddReclaimableFn(PluginName, asEvictableFn(ssn.Reclaimable, p.unlessPlanned(p.chooseReclaimVictims)))
	ssn.AddSimulatePredicateFn(PluginName, func(_ context.Context, _ fwk.CycleState, task *api.TaskInfo, node *api.NodeInfo) error {
		return p.afterEvictions(task, node)
	})
	ssn.AddEventHandler(&framework.EventHandler{AllocateFunc: p.onAllocate, DeallocateFunc: p.onDeallocate})
	if p.limits != nil {
		p.limits.Register(ssn, PluginName)
	}
}

// victimOrder sorts victims for a task as Volcano will evict them. The session is one.
type victimOrder interface {
	BuildVictimsPriorityQueue(victims []*api.TaskInfo, preemptor *api.TaskInfo) *util.PriorityQueue
}

// asEvictableFn turns a choice of victims into Volcano's form. Without an opinion it leaves the
// choice to other plugins.
//
// To learn what the others allow, it asks Volcano, which asks this plugin again: then it
// allows everybody. It recognises such a question by its task, a copy made for the
// question, so dry runs can ask from many goroutines.
func asEvictableFn(decide victimFilter, choose victimChooser) api.EvictableFn {
	var questions sync.Map
	agree := func(task *api.TaskInfo, candidates []*api.TaskInfo) []*api.TaskInfo {
		question := task.Clone()
		questions.Store(question, struct{}{})
		defer questions.Delete(question)
		return decide(question, candidates)
	}
	return func(task *api.TaskInfo, candidates []*api.TaskInfo) ([]*api.TaskInfo, int) {
		if _, ours := questions.Load(task); ours {
			return candidates, pluginutil.Permit
		}
		if victims, opinion := choose(task, candidates, agree); opinion {
			return victims, pluginutil.Permit
		}
		return nil, pluginutil.Abstain
	}
}

// refusalOn makes the fit error of one task on one node. Volcano evicts pods only
// for a refusal that is curable.
func refusalOn(task *api.TaskInfo, node *api.NodeInfo, curable bool, text string) error {
	code := api.UnschedulableAndUnresolvable
	if curable {
		code = api.Unschedulable
	}
	// One allocation for what would be three: on a full cluster nearly every
	// answer is a refusal.
	r := &struct {
		err    api.FitError
		sets   [1]*api.Status
		status api.Status
	}{status: api.Status{Code: code, Reason: waiting.WithoutVerbs(text)}}
	r.sets[0] = &r.status
	r.err = *api.NewFitErrWithStatus(task, node, r.sets[:]...)
	return &r.err
}

// refusalEverywhere makes the error that says no node can serve the task.
func refusalEverywhere(why error) error {
	return &api.FitError{Status: api.StatusSets{{Code: api.UnschedulableAndUnresolvable, Reason: waiting.WithoutVerbs(why.Error())}}}
}

// judgedNow reports whether Volcano will allocate the task on the node, rather than wait
// for pods that are leaving. Volcano decides that from sums alone, and devices must be
// judged for the same moment.
func judgedNow(task *api.TaskInfo, node *api.NodeInfo) bool {
	return task.InitResreq.LessEqual(node.Idle, api.Zero)
}

// hasReleasing reports whether the pods that are leaving the node hold any of the
// resource.
func hasReleasing(node *api.NodeInfo, resource string) bool {
	return node.Releasing.ScalarResources[corev1.ResourceName(resource)] > 0
}

// needsOf returns what a task needs of a node beside devices.
func needsOf(task *api.TaskInfo) worth.Amounts {
	return worth.Amounts{CPU: task.Resreq.MilliCPU, Memory: task.Resreq.Memory}
}

// freeOn returns what is free of a node beside devices.
func freeOn(node *api.NodeInfo) worth.Amounts {
	return worth.Amounts{CPU: node.Idle.MilliCPU, Memory: node.Idle.Memory}
}

// freeFor returns what is free of a node when Volcano uses it for the task.
func freeFor(task *api.TaskInfo, node *api.NodeInfo) worth.Amounts {
	if hasNoCPUOrMemory(node.Releasing) && hasNoCPUOrMemory(node.Pipelined) || judgedNow(task, node) {
		return freeOn(node)
	}
	future := node.FutureIdle()
	return worth.Amounts{CPU: future.MilliCPU, Memory: future.Memory}
}

// hasNoCPUOrMemory reports whether what leaves a node, or is promised there, is no CPU and no
// memory. It is asked for every node and every pod, and judgedNow compares amounts of all
// resources.
func hasNoCPUOrMemory(r *api.Resource) bool { return r.MilliCPU == 0 && r.Memory == 0 }

// tasksOf yields every task of a session once or more often: those on nodes, and those of jobs.
func tasksOf(ssn *framework.Session) iter.Seq[*api.TaskInfo] {
	return func(yield func(*api.TaskInfo) bool) {
		for _, n := range ssn.Nodes {
			for _, t := range n.Tasks {
				if !yield(t) {
					return
				}
			}
		}
		for _, j := range ssn.Jobs {
			for _, t := range j.Tasks {
				if !yield(t) {
					return
				}
			}
		}
	}
}

// change is what an event of a session means for devices.
type change int

const (
	reserved  change = iota // the task takes devices that are free
	promised                // the task takes devices that leaving pods free
	withdrawn               // the task gives back what it took in this session
	moved                   // another pod began or ceased to leave the node
)

// changeOnAllocate translates the status of a task in an allocate event.
func changeOnAllocate(task *api.TaskInfo) change {
	switch task.Status {
	case api.Allocated:
		return reserved
	case api.Pipelined:
		return promised
	default:
		return moved // an eviction was undone
	}
}

// changeOnDeallocate translates the status of a task in a deallocate event.
func changeOnDeallocate(task *api.TaskInfo) change {
	if task.Status == api.Pending {
		return withdrawn
	}
	return moved // it is being evicted
}

// dryRunPreemption reports whether the preempt action is configured to try
// evictions on copies of a node instead of going by sums.
func dryRunPreemption(ssn *framework.Session) bool {
	on := false
	framework.GetArgOfActionFromConf(ssn.Configurations, "preempt").GetBool(&on, "enableTopologyAwarePreemption")
	return on
}

// nodesToFind is how many nodes that fit a pod Volcano looks for before it chooses
// among them. Which nodes it has not looked at is not known.
func nodesToFind(nodes int) int {
	if options.ServerOpts == nil {
		return nodes // not run as a scheduler
	}
	return int(util.CalculateNumOfFeasibleNodesToFind(int32(nodes)))
}

// isActionEnabled reports whether an action is configured.
func isActionEnabled(action string) bool { return conf.EnabledActionMap[action] }
