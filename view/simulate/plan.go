// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/plugins/deviceshare/offline"
	"deviceshare/sharing/events"
	"deviceshare/sharing/plan"
	"deviceshare/sharing/request"
	"deviceshare/sharing/wire"
	"deviceshare/view"
	"deviceshare/view/capture"
)

// planning is the search for what would have to happen so that some pods start. The scheduler
// itself makes room in a copy of the cluster, and pods that move are made again.
type planning struct {
	*run
	// wishes are the pods that are to start.
	wishes []types.NamespacedName
	// left are the pods that left, as they were before.
	left []offline.Eviction
	// unasked are those that did not say that they may move.
	unasked map[types.UID]bool
	// shares is how many shares of devices pods have, by namespace and name.
	shares map[string]int
	// refused is why the webhook does not let the wish in, "" if it does.
	refused string
}

// Wish is what is to start: a pod that waits, with all pods of its group that do, or a pod that
// would come and ask for so many whole devices.
type Wish struct {
	Pod     types.NamespacedName
	Devices int
	// Node is the only node for the devices, Queue their queue and PriorityClass that of the pod;
	// "" for any and the default ones.
	Node, Queue, PriorityClass string
}

// Plan says what would have to happen in a captured cluster so that a wish is served. If the
// scheduler has no room for it and makes none, every pod that has a controller may move which does
// not refuse to. Of the question, who comes and leaves counts for nothing. The capture is not
// changed.
func Plan(s *capture.State, q *Question, wish *Wish) (*view.Plan, error) {
	if s.Scheduling == nil {
		return nil, errNoScheduling
	}
	names, schedulerName, err := findWishes(s, q.SchedulerName, wish)
	if err != nil {
		return nil, err
	}
	question := Question{Backends: q.Backends, Config: q.Config, Policy: q.Policy, SchedulerName: schedulerName, onRequest: true}
	l, err := newPlanning(s, &question)
	if err != nil {
		return nil, err
	}
	l.wishes = names
	for _, step := range []func() error{l.loadCapture, l.silenceOthers, func() error { return l.addDevices(wish) }, l.makeRoom} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if len(l.left) == 0 && !l.haveStarted() {
		if err := l.permitMoves(); err != nil {
			return nil, err
		}
		if err := l.makeRoom(); err != nil {
			return nil, err
		}
	}
	out := l.reportSteps()
	if out.Devices = wish.Devices; wish.Devices > 0 {
		out.For[0].Was = view.Added
	}
	out.Conclude()
	return out, nil
}

func newPlanning(s *capture.State, q *Question) (*planning, error) {
	r, err := newRun(s, q)
	if err != nil {
		return nil, err
	}
	l := &planning{run: r, unasked: map[types.UID]bool{}, shares: map[string]int{}}
	for _, h := range view.Read(s, q.Backends).Pods("") {
		l.shares[h.Namespace+"/"+h.Pod]++
	}
	return l, nil
}

// findWishes finds the pods of a group that wait, of which one is named, and whose they are to
// place.
func findWishes(s *capture.State, schedulerName string, wish *Wish) (names []types.NamespacedName, scheduler string, err error) {
	if wish.Devices > 0 {
		return nil, schedulerName, nil
	}
	pods := wholePods(s)
	i := slices.IndexFunc(pods, func(p *corev1.Pod) bool { return nameOfPod(p) == wish.Pod })
	if i < 0 {
		return nil, "", fmt.Errorf("plan for pod %s: there is none: is the namespace right? (-n)", wish.Pod)
	}
	p := pods[i]
	if scheduler = p.Spec.SchedulerName; !waitsFor(p, scheduler) || scheduler == corev1.DefaultSchedulerName {
		return nil, "", fmt.Errorf("plan for pod %s: it does not wait for shared devices: see kubectl deviceshare why %s -n %s",
			wish.Pod, wish.Pod.Name, wish.Pod.Namespace)
	}
	for _, other := range pods {
		if other == p || waitsFor(other, scheduler) && other.Namespace == p.Namespace && groupOf(p) != "" && groupOf(other) == groupOf(p) {
			names = append(names, nameOfPod(other))
		}
	}
	return names, scheduler, nil
}

func groupOf(p *corev1.Pod) string { return p.Annotations[wire.GroupName] }

// gate is the scheduling gate of pods that the plan is not about.
const gate = "deviceshare/not-asked"

// silenceOthers keeps the other pods that wait from asking for room, too.
func (l *planning) silenceOthers() error {
	for _, p := range l.cluster.Pods() {
		if !l.isWaiting(p) || slices.Contains(l.wishes, nameOfPod(p)) {
			continue
		}
		p = p.DeepCopy()
		p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
		if err := l.cluster.Add(p); err != nil {
			return err
		}
	}
	return nil
}

func nameOfPod(p *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// addDevices has a pod come that asks for whole devices, if the wish is one.
func (l *planning) addDevices(wish *Wish) error {
	if wish.Devices == 0 {
		return nil
	}
	p := l.podWithDevices(wish.Devices)
	if wish.Queue != "" {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, schedulingv1beta1.QueueNameAnnotationKey, wish.Queue)
	}
	p.Spec.PriorityClassName = wish.PriorityClass
	if wish.Node != "" {
		p.Spec.Affinity = onlyOn(wish.Node)
	}
	l.wishes = []types.NamespacedName{nameOfPod(p)}
	if err := l.addOne(p); err != nil {
		return err
	}
	l.refused = l.asked[len(l.asked)-1].refused
	return nil
}

// ownNamespace is that of the pods that come, so that none of the cluster has their names.
const ownNamespace = "simulated"

// podWithDevices is a pod that asks for whole devices of one node.
func (l *planning) podWithDevices(devices int) *corev1.Pod {
	names := l.settings.Names
	amounts := corev1.ResourceList{corev1.ResourceName(names.Number): *resource.NewQuantity(int64(devices), resource.DecimalSI)}
	if names.Percentage != "" {
		amounts[corev1.ResourceName(names.Percentage)] = resource.MustParse("100")
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ownNamespace, Name: fmt.Sprintf("pod-with-%d-devices", devices)}}
	p.Spec.SchedulerName = l.question.SchedulerName
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Limits: amounts, Requests: amounts}}}
	return p
}

func onlyOn(node string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}}},
	}}}
}

// makeRoom runs the scheduler until it changes nothing. Pods that move are made again.
func (l *planning) makeRoom() error {
	for range mostPlanCycles {
		changed, err := l.cluster.Cycle()
		if err != nil || !changed {
			return err
		}
		evicted := l.cluster.Evicted()
		for _, e := range evicted[len(l.left):] {
			if e.Event != events.Moved {
				continue
			}
			if err := l.cluster.Add(l.successorOf(e.Pod)); err != nil {
				return err
			}
		}
		l.left = slices.Clone(evicted)
	}
	return fmt.Errorf("plan: after %d cycles the scheduler still evicts or places pods", mostPlanCycles)
}

// mostPlanCycles bounds makeRoom: a plan takes a few cycles.
const mostPlanCycles = 200

func (l *planning) haveStarted() bool {
	return !slices.ContainsFunc(l.wishes, func(name types.NamespacedName) bool {
		p, there := l.cluster.Pod(name)
		return !there || p.Spec.NodeName == ""
	})
}

// permitMoves lets all pods move that somebody makes again and that say nothing about it, nor does
// their namespace.
func (l *planning) permitMoves() error {
	says := map[string]bool{}
	for _, n := range l.state.Scheduling.Namespaces {
		_, says[n.Name] = n.Labels[wire.UserMayMove]
	}
	for _, p := range l.cluster.Pods() {
		_, itself := p.Annotations[wire.UserMayMove]
		if p.Spec.NodeName == "" || itself || says[p.Namespace] || metav1.GetControllerOf(p) == nil {
			continue
		}
		p = p.DeepCopy()
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, wire.UserMayMove, wire.MayMove)
		l.unasked[p.UID] = true
		if err := l.cluster.Add(p); err != nil {
			return err
		}
	}
	return nil
}

// reportSteps says what became of the pods.
func (l *planning) reportSteps() *view.Plan {
	out := &view.Plan{}
	for _, name := range l.wishes {
		out.For = append(out.For, l.podOutcome(&asked{name: name, was: view.Waited, refused: l.refused}))
	}
	for i := range l.left {
		out.Steps = append(out.Steps, l.describeStep(&l.left[i]))
	}
	if slices.ContainsFunc(l.left, func(e offline.Eviction) bool { return l.state.Taken.Sub(e.Pod.CreationTimestamp.Time) < time.Hour }) {
		l.addNote("Some of them were made within the last hour. The scheduler leaves such a pod alone for an hour (argument rest) if it has moved, " +
			"or the scheduler has started since.")
	}
	l.noteMissingBudgets()
	for _, p := range slices.Sorted(slices.Values(l.cluster.Problems())) {
		l.addNote("The scheduler reports: " + p)
	}
	out.Notes = l.out.Notes
	return out
}

func (l *planning) describeStep(e *offline.Eviction) view.Step {
	p := e.Pod
	s := view.Step{
		Pod: nameOfPod(p).String(), UID: string(p.UID), Node: p.Spec.NodeName, Event: e.Event,
		Devices: l.shares[nameOfPod(p).String()], Grace: corev1.DefaultTerminationGracePeriodSeconds, Permitted: !l.unasked[p.UID],
	}
	if again, there := l.cluster.Pod(nameOfPod(p)); there && again.UID != p.UID {
		s.To = again.Spec.NodeName
	}
	if p.Spec.Priority != nil {
		s.Priority = *p.Spec.Priority
	}
	if g := p.Spec.TerminationGracePeriodSeconds; g != nil {
		s.Grace = *g
	}
	if started := p.Status.StartTime; started != nil {
		s.Runs = max(0, int64(l.state.Taken.Sub(started.Time).Seconds()))
	}
	s.Work = plan.WorkLost(s.Runs, request.MovabilityOf(p.Annotations, nil).RestartCost) * int64(s.Devices)
	return s
}
