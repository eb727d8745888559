// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/actions/backfill"
	"volcano.sh/volcano/pkg/scheduler/actions/enqueue"
	"volcano.sh/volcano/pkg/scheduler/actions/preempt"
	"volcano.sh/volcano/pkg/scheduler/actions/reclaim"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins"
	"volcano.sh/volcano/pkg/scheduler/plugins/overcommit"
	"volcano.sh/volcano/pkg/scheduler/plugins/priority"

	"deviceshare/sharing/wire"
)

// lab is a world that goes on by seconds: deleted pods end after their grace period, controllers
// make pods again, kubelets start pods, and what Volcano writes is kept.
type lab struct {
	*world
	// asVolcano has Volcano carry out evictions, as it did before there were holds.
	asVolcano bool
	actions   []framework.Action

	mu sync.Mutex
	// ends is when deleted pods end, by name; evicted are those that were deleted by calls.
	ends     map[string]int64
	evicted  []string
	versions int
	// replaced are the pods that a controller makes again, made is how many it has made.
	replaced map[string]bool
	made     int
	// failing is how many deletions of a pod still fail, by name.
	failing map[string]int
	leads   bool
	// calls is closed for calls about pods while a session runs: Volcano's allocate writes to pods
	// that its informer reads when one of them has changed.
	calls sync.RWMutex
}

// newLab returns a lab with Volcano's priorities and plugin overcommit, in one tier with ours.
func newLab(t *testing.T, objects ...runtime.Object) *lab {
	t.Helper()
	return newLabOf(t, false, objects...)
}

func newLabOf(t *testing.T, asVolcano bool, objects ...runtime.Object) *lab {
	t.Helper()
	l := &lab{asVolcano: asVolcano, leads: true, ends: map[string]int64{}, replaced: map[string]bool{}, failing: map[string]int{}}
	l.world = newWorldWith(t, nil, objects...)
	l.world.lead = l
	l.restart()
	l.cache.StatusUpdater = labStatus{l.status, l}
	l.cache.Recorder = &record.FakeRecorder{} // one that keeps nothing: histories are long
	l.client.PrependReactor("delete", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		d := a.(k8stesting.DeleteActionImpl)
		return true, nil, l.answerDelete(d.Name, &d.DeleteOptions)
	})
	l.client.PrependReactor("create", "pods", func(a k8stesting.Action) (bool, runtime.Object, error) {
		eviction, ok := a.(k8stesting.CreateAction).GetObject().(*policyv1.Eviction)
		if !ok {
			return false, nil, nil
		}
		return true, nil, l.answerDelete(eviction.Name, eviction.DeleteOptions)
	})
	l.client.PrependReactor("update", "pods", l.answerUpdate)
	for name, value := range map[string]int32{"low": 1, "high": 100, "top": 200} {
		l.cache.AddPriorityClass(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value})
	}
	framework.RegisterPluginBuilder(priority.PluginName, priority.New)
	framework.RegisterPluginBuilder(overcommit.PluginName, overcommit.New)
	l.oneTier()
	for _, name := range []string{priority.PluginName, overcommit.PluginName} {
		o := conf.PluginOption{Name: name}
		plugins.ApplyPluginConfDefaults(&o)
		if name == priority.PluginName {
			l.tiers[0].Plugins = slices.Insert(l.tiers[0].Plugins, 0, o)
		} else {
			l.tiers[0].Plugins = append(l.tiers[0].Plugins, o)
		}
	}
	l.world.actions = []conf.Configuration{{Name: "preempt", Arguments: map[string]any{"enableTopologyAwarePreemption": true}}}
	l.actions = []framework.Action{enqueue.New(), allocate.New(), preempt.New(), reclaim.New(), backfill.New()}
	return l
}

// Begin implements Leadership.
func (l *lab) Begin() (time.Time, func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leads {
		return time.Time{}, nil, errors.New("another process may lead")
	}
	return time.Now().Add(time.Hour), func() {}, nil
}

func (l *lab) setLeads(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leads = on
}

// labStatus keeps what Volcano writes of pods and groups.
type labStatus struct {
	*statusRecorder
	l *lab
}

func (s labStatus) UpdatePodStatus(pod *corev1.Pod) (*corev1.Pod, error) {
	s.l.changePod(pod.Name, func(p *corev1.Pod) {
		if p.ResourceVersion == pod.ResourceVersion { // else the API server answers that there is a conflict
			p.Status.NominatedNodeName = pod.Status.NominatedNodeName
		}
	})
	return s.statusRecorder.UpdatePodStatus(pod)
}

// answerUpdate is the API server's side of an update of a pod.
func (l *lab) answerUpdate(action k8stesting.Action) (bool, runtime.Object, error) {
	l.calls.RLock()
	defer l.calls.RUnlock()
	pod := action.(k8stesting.UpdateAction).GetObject().(*corev1.Pod)
	conflict := false
	l.changePod(pod.Name, func(p *corev1.Pod) {
		if conflict = p.ResourceVersion != pod.ResourceVersion; !conflict {
			p.Status = pod.Status
		}
	})
	if conflict {
		return true, nil, apierrors.NewConflict(corev1.Resource("pods"), pod.Name, errors.New("the pod has changed"))
	}
	return true, l.pod(pod.Name), nil
}

func (s labStatus) UpdatePodGroup(g *api.PodGroup) (*api.PodGroup, error) {
	groups := s.l.cache.VCClient().SchedulingV1beta1().PodGroups(g.Namespace)
	now, err := groups.Get(s.l.t.Context(), g.Name, metav1.GetOptions{})
	if err == nil && now.Status.Phase != schedulingv1beta1.PodGroupPhase(g.Status.Phase) {
		now = now.DeepCopy()
		now.Status.Phase = schedulingv1beta1.PodGroupPhase(g.Status.Phase)
		_, err = groups.Update(s.l.t.Context(), now, metav1.UpdateOptions{})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	return s.statusRecorder.UpdatePodGroup(g)
}

// changePod changes a pod of the API server, if it is there.
func (l *lab) changePod(name string, change func(*corev1.Pod)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	o, err := l.client.Tracker().Get(pods, "ns", name)
	if err != nil {
		return
	}
	pod := o.(*corev1.Pod).DeepCopy()
	if change(pod); equality.Semantic.DeepEqual(pod, o) {
		return // as the API server does, which tells nobody
	}
	l.versions++
	pod.ResourceVersion = strconv.Itoa(l.versions)
	if err := l.client.Tracker().Update(pods, pod, "ns"); err != nil {
		l.t.Errorf("change pod %s: %v", name, err)
	}
}

// answerDelete is the API server's side of a deletion, or an eviction: the pod has its grace
// period.
func (l *lab) answerDelete(name string, o *metav1.DeleteOptions) error {
	l.calls.RLock()
	defer l.calls.RUnlock()
	l.mu.Lock()
	if l.failing[name] > 0 {
		l.failing[name]--
		l.mu.Unlock()
		return apierrors.NewInternalError(errors.New("etcd is away"))
	}
	l.mu.Unlock()
	if p := o.Preconditions; p != nil && p.UID != nil {
		if pod := l.pod(name); pod != nil && pod.UID != *p.UID {
			return apierrors.NewConflict(corev1.Resource("pods"), name, errors.New("another UID"))
		}
	}
	l.leave(name)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.evicted = append(l.evicted, name)
	return nil
}

// leave gives a pod its grace period.
func (l *lab) leave(name string) {
	l.changePod(name, func(p *corev1.Pod) {
		if p.DeletionTimestamp == nil {
			now := metav1.NewTime(time.Unix(1700000000+l.seconds.Load(), 0))
			p.DeletionTimestamp = &now
			grace := int64(30)
			if g := p.Spec.TerminationGracePeriodSeconds; g != nil {
				grace = *g
			}
			l.ends[name] = l.seconds.Load() + grace
		}
	})
}

// pod returns a pod of the API server, nil if there is none.
func (l *lab) pod(name string) *corev1.Pod {
	o, err := l.client.Tracker().Get(corev1.SchemeGroupVersion.WithResource("pods"), "ns", name)
	if err != nil {
		return nil
	}
	return o.(*corev1.Pod)
}

// running returns the pods that have a node and need not leave it.
func (l *lab) running() (names []string) {
	for _, pod := range l.pods() {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			names = append(names, pod.Name)
		}
	}
	return names
}

// orderAsShipped has the actions run in the order of the shipped configuration.
func (l *lab) orderAsShipped() {
	order := []string{"enqueue", "allocate", "consolidate", "reclaim", "preempt", "backfill"}
	slices.SortFunc(l.actions, func(a, b framework.Action) int { return slices.Index(order, a.Name()) - slices.Index(order, b.Name()) })
}

// tick lets a second pass and runs a session.
func (l *lab) tick() {
	l.t.Helper()
	now := l.seconds.Add(1)
	for _, pod := range l.pods() {
		l.mu.Lock()
		end, leaves := l.ends[pod.Name]
		l.mu.Unlock()
		switch {
		case leaves && end <= now:
			l.end(&pod)
		case pod.Spec.NodeName != "" && pod.Status.Phase == corev1.PodPending:
			l.changePod(pod.Name, func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning })
		}
	}
	l.caughtUp()
	l.cycle()
}

// end removes a pod, and its controller makes it again.
func (l *lab) end(pod *corev1.Pod) {
	l.t.Helper()
	if err := l.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "ns", pod.Name); err != nil {
		l.t.Fatal(err)
	}
	l.mu.Lock()
	delete(l.ends, pod.Name)
	again := l.replaced[pod.Name]
	l.mu.Unlock()
	if !again {
		return
	}
	l.made++
	next := pod.DeepCopy()
	next.Name = fmt.Sprintf("%s-%d", strings.SplitN(pod.Name, "-", 2)[0], l.made)
	next.ResourceVersion = ""
	next.UID, next.DeletionTimestamp, next.Spec.NodeName = types.UID("uid-"+next.Name), nil, ""
	next.CreationTimestamp = metav1.NewTime(time.Unix(1700000000+l.seconds.Load(), 0))
	next.Status = corev1.PodStatus{Phase: corev1.PodPending}
	for k := range next.Annotations {
		if !slices.Contains([]string{schedulingv1beta1.KubeGroupNameAnnotationKey, schedulingv1beta1.PodPreemptable, wire.UserMayMove, wire.UserMode}, k) {
			delete(next.Annotations, k) // it is no part of the template
		}
	}
	l.replaced[next.Name] = true
	l.add(next)
}

// enableActions has Volcano know which actions the configuration has.
func enableActions(actions []framework.Action) {
	conf.EnabledActionMap = map[string]bool{}
	for _, a := range actions {
		conf.EnabledActionMap[a.Name()] = true
	}
}

// cycle runs one session and waits until its calls are answered and seen.
func (l *lab) cycle() {
	l.t.Helper()
	l.calls.Lock()
	l.eventually("the cache shows what was answered", func() bool { return l.behindAnswers() == "" })
	ssn := l.open()
	enableActions(l.actions)
	for _, a := range l.actions {
		if !l.asVolcano {
			a = l.store.MakingRoom(a)
		}
		l.store.Explained(a).Execute(ssn)
	}
	l.calls.Unlock()
	framework.CloseSession(ssn)
	l.caughtUp()
}

// caughtUp waits until the API server has answered every call and Volcano's cache shows it.
func (l *lab) caughtUp() {
	l.t.Helper()
	missing := ""
	defer func() {
		if l.t.Failed() {
			l.t.Log("not caught up: ", missing)
		}
	}()
	l.eventually("the cache shows the API server", func() bool {
		missing = l.behind()
		return missing == ""
	})
}

// behind says which calls have no answer, or what Volcano's cache does not show yet.
func (l *lab) behind() string {
	l.mu.Lock()
	leads := l.leads
	l.mu.Unlock()
	if leads && l.store.room.Unanswered() > 0 {
		return "evictions without an answer"
	}
	return l.behindAnswers()
}

// behindAnswers says what Volcano's cache does not show yet.
func (l *lab) behindAnswers() string {
	pods := l.pods()
	l.cache.Mutex.Lock()
	defer l.cache.Mutex.Unlock()
	pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.Annotations[schedulingv1beta1.KubeGroupNameAnnotationKey] == "" })
	n := 0
	for _, j := range l.cache.Jobs {
		n += len(j.Tasks)
		for _, t := range j.Tasks {
			if t.Status == api.Binding || t.Status == api.Releasing && t.Pod.DeletionTimestamp == nil {
				return "a call about pod " + t.Name
			}
		}
	}
	if n != len(pods) {
		return fmt.Sprintf("%d of %d pods", n, len(pods))
	}
	for i := range pods {
		p := &pods[i]
		job := l.cache.Jobs[api.JobID("ns/"+p.Annotations[schedulingv1beta1.KubeGroupNameAnnotationKey])]
		if job == nil || job.Tasks[api.TaskID(p.UID)] == nil {
			return "pod " + p.Name
		}
		seen := job.Tasks[api.TaskID(p.UID)]
		if (seen.Pod.DeletionTimestamp == nil) != (p.DeletionTimestamp == nil) || seen.Pod.Status.Phase != p.Status.Phase ||
			seen.Pod.Status.NominatedNodeName != p.Status.NominatedNodeName || seen.NodeName != p.Spec.NodeName ||
			seen.Pod.ResourceVersion != p.ResourceVersion {
			return "the latest of pod " + p.Name
		}
	}
	return ""
}

// evictions returns the pods that were evicted, in their order.
func (l *lab) evictions() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.evicted)
}

// isBound reports whether a pod has a node.
func (l *lab) isBound(name string) bool {
	pod := l.pod(name)
	return pod != nil && pod.Spec.NodeName != ""
}

// ticksUntilBound lets seconds pass until a pod is bound and returns how many, at most so many.
func (l *lab) ticksUntilBound(name string, most int) int {
	l.t.Helper()
	for i := range most {
		if l.isBound(name) {
			return i
		}
		l.tick()
	}
	return most
}

// important is a group of a priority class.
func important(class, name string, members int32) *schedulingv1beta1.PodGroup {
	g := groupOf(name, members)
	g.Spec.PriorityClassName = class
	return g
}

// withGrace gives a pod so many seconds to end.
func withGrace(pod *corev1.Pod, seconds int64) *corev1.Pod {
	pod.Spec.TerminationGracePeriodSeconds = &seconds
	return pod
}

// wants gives a group the amounts that its pods ask for.
func wants(g *schedulingv1beta1.PodGroup, a asks) *schedulingv1beta1.PodGroup {
	list := a.list()
	delete(list, corev1.ResourceCPU)
	g.Spec.MinResources = &list
	return g
}
