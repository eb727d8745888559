// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/demand"
	"deviceshare/plugins/deviceshare/waiting"
	"deviceshare/plugins/deviceshare/waiting/news"
	"deviceshare/sharing/policy"
)

const (
	// joiningFor is how long a new node may take until it offers its devices.
	joiningFor = 15 * time.Minute
	// mostWaiting is for how many pods nodes are asked for at once, those that have waited longest.
	mostWaiting = 1000
)

// waitingTask is a task that was told why it waits.
type waitingTask struct {
	task  *api.TaskInfo
	cause news.Cause
}

// askForNodes has nodes asked for the pods that no node has devices for.
func (p *Plugin) askForNodes(ssn *framework.Session, told map[*api.JobInfo][]waitingTask) {
	tasks, now := p.tasksForNewNodes(ssn, told), p.store.uptimeSeconds()
	if p.off != nil || !p.store.demand.IsDue(now, len(tasks) > 0, len(p.nodes)) {
		return
	}
	all, err := ssn.InformerFactory().Core().V1().Nodes().Lister().List(labels.Everything())
	if err != nil {
		klog.ErrorS(err, "Cannot list nodes to ask for more")
		return
	}
	l := demand.Look{Waiting: p.podsOf(tasks), Settings: p.settings}
	for _, n := range all {
		l.Seen = append(l.Seen, p.seeNode(n))
	}
	p.store.demand.See(ssn.KubeClient(), now, &l)
}

// tasksForNewNodes are those of jobs that wait for nothing but nodes with devices. Of a gang that
// is not complete, or waits for its queue, there is none.
func (p *Plugin) tasksForNewNodes(ssn *framework.Session, told map[*api.JobInfo][]waitingTask) []*api.TaskInfo {
	var tasks []*api.TaskInfo
	for job, of := range told {
		isOf := func(cause news.Cause) func(waitingTask) bool {
			return func(t waitingTask) bool { return t.cause == cause }
		}
		isHeldBack := slices.ContainsFunc(of, isOf(news.Enqueue)) && p.isHeldBackBySize(ssn, job)
		if !isHeldBack && !slices.ContainsFunc(of, isOf(news.Nodes)) {
			continue
		}
		for _, t := range of {
			switch t.cause {
			case news.Nodes, news.Gang, news.Turn:
				tasks = append(tasks, t.task)
			case news.Enqueue:
				if isHeldBack {
					tasks = append(tasks, t.task)
				}
			}
		}
	}
	return tasks
}

// podsOf are the pods of tasks, those that have waited longest.
func (p *Plugin) podsOf(tasks []*api.TaskInfo) []demand.Pod {
	slices.SortFunc(tasks, func(a, b *api.TaskInfo) int {
		return cmp.Or(a.Pod.CreationTimestamp.Compare(b.Pod.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	var pods []demand.Pod
	for _, t := range tasks[:min(len(tasks), mostWaiting)] {
		if a := p.rememberAsk(t); a.served() != nil && a.claim == nil {
			pods = append(pods, demand.Pod{Object: t.Pod, Request: a.request, Backends: p.store.backends, Policy: p.steadyPolicy(a)})
		}
	}
	return pods
}

// awaitsRoom reports whether nobody is to be evicted for a task now: it has room as soon as pods
// have ended that are leaving, or a new node comes.
func (j *judge) awaitsRoom(t *api.TaskInfo, a *ask) bool {
	return j.limits.AwaitsLeaving(t, a.served()) || j.store.demand.Awaits(t.Pod.UID, j.store.uptimeSeconds())
}

// steadyPolicy is that of a pod, or another where it changes with what is learned: whoever counts
// new nodes does so when the session is over.
func (p *Plugin) steadyPolicy(a *ask) policy.Policy {
	chosen := p.policyFor(a)
	if chosen.Learns() {
		chosen, _ = policy.Named("binpack")
	}
	return chosen
}

// isHeldBackBySize reports whether a job was not let in because the cluster is too small for it,
// and not its queue's limit.
func (p *Plugin) isHeldBackBySize(ssn *framework.Session, job *api.JobInfo) bool {
	return heldBack{p.witness, ssn}.IsHeldBackBySum(job) && !waiting.ExceedsCapability(ssn.Queues[job.Queue], job)
}

// seeNode is a node as demand sees it.
func (p *Plugin) seeNode(n *corev1.Node) demand.Seen {
	s := demand.Seen{Node: n, IsJoining: p.store.now().Sub(n.CreationTimestamp.Time) < joiningFor}
	if known := p.nodes[n.Name]; known != nil && known.Inventory != nil {
		s.Node, s.Inventory = known.Object, known.Inventory
		s.TakesPods = known.Unusable == nil && !known.Object.Spec.Unschedulable
	}
	if info := p.infos[n.Name]; info != nil && s.TakesPods {
		s.Idle = demand.Amounts{
			corev1.ResourceCPU: int64(info.Idle.MilliCPU), corev1.ResourceMemory: int64(info.Idle.Memory) * 1000,
			corev1.ResourcePods: int64(info.Allocatable.MaxTaskNum-len(info.Tasks)) * 1000,
		}
		for name, amount := range info.Idle.ScalarResources {
			if name != corev1.ResourcePods {
				s.Idle[name] = int64(amount)
			}
		}
	}
	return s
}
