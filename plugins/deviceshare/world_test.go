// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/pkg/scheduler/actions/allocate"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/cache"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/plugins"
	"volcano.sh/volcano/pkg/scheduler/plugins/gang"
	"volcano.sh/volcano/pkg/scheduler/util"

	"deviceshare/plugins/leader"
	"deviceshare/sharing"
	"deviceshare/sharing/factory"
	"deviceshare/sharing/wire"
)

// world is a real Volcano cache and real sessions over a fake API server that
// does with Bindings what the real one does.
type world struct {
	t      testing.TB
	store  *Store
	cache  *cache.SchedulerCache
	client *fake.Clientset
	args   framework.Arguments
	tiers  []conf.Tier
	// actions configure the actions of a session.
	actions []conf.Configuration
	status  *statusRecorder
	report  *reportRecorder
	plugin  *Plugin // of the session opened last
	idle    bool    // sessions place nothing
	claims  bool    // the next scheduler process allocates ResourceClaims
	version atomic.Int64
	// claimWrites is held while a claim is written, and answerClaim says what becomes of a write,
	// by what it would make; nil accepts it.
	claimWrites sync.Mutex
	answerClaim func(after *resourcev1.ResourceClaim, subresource string) error
	// seconds is the time since the world began, and lead says who may write; nil is the world
	// alone.
	seconds atomic.Int64
	lead    leader.Leadership

	mu       sync.Mutex
	bindings map[string]corev1.Binding // by pod name, the last one
	// answer decides what becomes of a Binding; nil accepts it.
	answer func(*corev1.Binding) (apply bool, err error)
	// held are the pods whose Bindings are on their way until the channel is closed.
	held map[string]chan struct{}
}

// reportRecorder keeps what was reported.
type reportRecorder struct {
	mu   sync.Mutex
	said []string
}

func (r *reportRecorder) Report(o *corev1.ObjectReference, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said = append(r.said, fmt.Sprintf("%s %s: %s: %s", o.Kind, o.Name, reason, message))
}

func (r *reportRecorder) Tell(o *corev1.ObjectReference, reason, message string) {
	r.Report(o, reason, message)
}

func (r *reportRecorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string{}, r.said...)
}

// statusRecorder keeps the last condition of each pod instead of writing it.
type statusRecorder struct {
	util.FakeStatusUpdater
	mu       sync.Mutex
	messages map[string]string
	// changed is how many of them were another text than before.
	changed int
	// groups are what was last written of each pod group.
	groups map[string]string
}

func (s *statusRecorder) UpdatePodGroup(g *api.PodGroup) (*api.PodGroup, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.groups == nil {
		s.groups = map[string]string{}
	}
	for _, c := range g.Status.Conditions {
		s.groups[g.Name] = c.Message
	}
	return g, nil
}

func (s *statusRecorder) UpdatePodStatus(pod *corev1.Pod) (*corev1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			if s.messages[pod.Name] != c.Message {
				s.changed++
			}
			s.messages[pod.Name] = c.Message
		}
	}
	return pod, nil
}

func (s *statusRecorder) message(pod string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.messages[pod]
}

// changes returns how many pods were told another text since it was asked last.
func (s *statusRecorder) changes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.changed
	s.changed = 0
	return n
}

func newWorld(t testing.TB, objects ...runtime.Object) *world {
	t.Helper()
	return newWorldWith(t, util.NewFakeEvictor(100), objects...)
}

// newWorldWith is newWorld with an evictor; nil is Volcano's own.
func newWorldWith(t testing.TB, evictor cache.Evictor, objects ...runtime.Object) *world {
	t.Helper()
	w := &world{
		t: t, args: framework.Arguments{}, bindings: map[string]corev1.Binding{},
		status: &statusRecorder{messages: map[string]string{}}, report: &reportRecorder{},
	}
	w.restart()
	w.cache = cache.NewCustomMockSchedulerCache(schedulerName, binderOf(w), evictor, w.status, nil, record.NewFakeRecorder(10000))
	w.cache.HyperNodesInfo = api.NewHyperNodesInfoWithCache(map[string]*api.HyperNodeInfo{}, map[int]sets.Set[string]{}, map[string]sets.Set[string]{}, ready())
	w.client = w.cache.Client().(*fake.Clientset)
	w.client.PrependReactor("create", "pods", w.bind)
	for _, o := range objects {
		w.add(o)
	}
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	w.cache.Run(stop)
	w.cache.AddQueueV1beta1(&schedulingv1beta1.Queue{
		ObjectMeta: metav1.ObjectMeta{Name: "default"}, Spec: schedulingv1beta1.QueueSpec{Weight: 1},
		Status: schedulingv1beta1.QueueStatus{State: schedulingv1beta1.QueueStateOpen},
	})
	for _, name := range []string{gang.PluginName, PluginName} {
		o := conf.PluginOption{Name: name}
		plugins.ApplyPluginConfDefaults(&o)
		w.tiers = append(w.tiers, conf.Tier{Plugins: []conf.PluginOption{o}})
	}
	w.seen(objects...)
	return w
}

// restart gives the world a scheduler process without a past.
func (w *world) restart() {
	w.store = NewStore(Options{
		Backends: factory.New(), Report: w.report, Lead: w.lead, Claims: w.claims, Now: func() time.Time { return time.Unix(1700000000+w.seconds.Load(), 0) },
	})
	w.t.Cleanup(w.store.room.Close)
}

// binderOf returns a binder that belongs to whatever store the world has.
func binderOf(w *world) cache.Binder { return worldBinder{w} }

func (w *world) add(o runtime.Object) {
	w.t.Helper()
	ctx := context.Background()
	var err error
	switch o := o.(type) {
	case *corev1.Node:
		_, err = w.client.CoreV1().Nodes().Create(ctx, o, metav1.CreateOptions{})
	case *corev1.Pod:
		_, err = w.client.CoreV1().Pods(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	case *schedulingv1beta1.PodGroup:
		_, err = w.cache.VCClient().SchedulingV1beta1().PodGroups(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	case *corev1.ResourceQuota:
		_, err = w.client.CoreV1().ResourceQuotas(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	case *resourcev1.ResourceClaim:
		_, err = w.client.ResourceV1().ResourceClaims(o.Namespace).Create(ctx, o, metav1.CreateOptions{})
	case *resourcev1.DeviceClass:
		_, err = w.client.ResourceV1().DeviceClasses().Create(ctx, o, metav1.CreateOptions{})
	default:
		err = fmt.Errorf("no such object in this world: %T", o)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// create adds objects while the world runs and waits until Volcano has them.
func (w *world) create(objects ...runtime.Object) {
	w.t.Helper()
	for _, o := range objects {
		w.add(o)
	}
	w.seen(objects...)
}

// seen waits until Volcano's cache has taken the objects in.
func (w *world) seen(objects ...runtime.Object) {
	w.t.Helper()
	for _, o := range objects {
		w.eventually(fmt.Sprintf("the cache has %T", o), func() bool {
			w.cache.Mutex.Lock()
			defer w.cache.Mutex.Unlock()
			switch o := o.(type) {
			case *corev1.Node:
				n := w.cache.Nodes[o.Name]
				return n != nil && n.Node != nil
			case *corev1.Pod:
				if o.Spec.NodeName != "" {
					n := w.cache.Nodes[o.Spec.NodeName]
					return n != nil && n.Tasks[api.PodKey(o)] != nil
				}
				j := w.cache.Jobs[api.JobID(o.Namespace+"/"+o.Annotations[schedulingv1beta1.KubeGroupNameAnnotationKey])]
				return j != nil && j.Tasks[api.TaskID(o.UID)] != nil
			case *schedulingv1beta1.PodGroup:
				j := w.cache.Jobs[api.JobID(o.Namespace+"/"+o.Name)]
				return j != nil && j.PodGroup != nil
			case *resourcev1.ResourceClaim:
				return w.store.claims.Find(types.NamespacedName{Namespace: o.Namespace, Name: o.Name}) != nil
			case *resourcev1.DeviceClass:
				_, err := w.cache.SharedInformerFactory().Resource().V1().DeviceClasses().Lister().Get(o.Name)
				return err == nil
			case *corev1.ResourceQuota:
				_, err := w.cache.SharedInformerFactory().Core().V1().ResourceQuotas().Lister().ResourceQuotas(o.Namespace).Get(o.Name)
				return err == nil
			}
			return true
		})
	}
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(10 * time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	w.t.Fatalf("waited for ever: %s", what)
}

// open opens a session; the caller closes it.
func (w *world) open() *framework.Session {
	framework.RegisterPluginBuilder(gang.PluginName, gang.New)
	Register(func(a framework.Arguments) framework.Plugin {
		p := w.store.Build(a)
		w.plugin = p.(*Plugin)
		return p
	})
	for i := range w.tiers {
		for j := range w.tiers[i].Plugins {
			if o := &w.tiers[i].Plugins[j]; o.Name == PluginName {
				o.Arguments = w.args
			}
		}
	}
	return framework.OpenSession(w.cache, w.tiers, w.actions)
}

// schedule runs one whole session.
func (w *world) schedule() {
	ssn := w.open()
	conf.EnabledActionMap = map[string]bool{"allocate": true}
	if !w.idle {
		allocate.New().Execute(ssn)
	}
	framework.CloseSession(ssn)
}

// bind is the API server's side of a Binding.
func (w *world) bind(action k8stesting.Action) (bool, runtime.Object, error) {
	create, ok := action.(k8stesting.CreateAction)
	if !ok || action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	b := create.GetObject().(*corev1.Binding)
	w.mu.Lock()
	w.bindings[b.Name] = *b
	answer := w.answer
	w.mu.Unlock()
	apply, err := true, error(nil)
	if answer != nil {
		apply, err = answer(b)
	}
	if apply {
		w.apply(b, action.GetNamespace())
	}
	return true, b, err
}

// apply writes node name, annotations and condition in one step, as the API
// server does.
func (w *world) apply(b *corev1.Binding, namespace string) {
	pods := corev1.SchemeGroupVersion.WithResource("pods")
	o, err := w.client.Tracker().Get(pods, namespace, b.Name)
	if err != nil {
		w.t.Errorf("bind: %v", err)
		return
	}
	pod := o.(*corev1.Pod).DeepCopy()
	pod.Spec.NodeName = b.Target.Name
	for k, v := range b.Annotations {
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, k, v)
	}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	if err := w.client.Tracker().Update(pods, pod, namespace); err != nil {
		w.t.Errorf("bind: %v", err)
	}
}

// binding returns the Binding that was sent for a pod.
func (w *world) binding(pod string) (corev1.Binding, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, ok := w.bindings[pod]
	return b, ok
}

// bound waits for the Binding of a pod.
func (w *world) bound(pod string) corev1.Binding {
	w.t.Helper()
	w.eventually("pod "+pod+" is bound", func() bool { _, ok := w.binding(pod); return ok })
	b, _ := w.binding(pod)
	return b
}

// answerWith decides what becomes of Bindings, by pod name.
func (w *world) answerWith(answer func(pod string) (apply bool, err error)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = func(b *corev1.Binding) (bool, error) { return answer(b.Name) }
}

// hold keeps the Binding of a pod on its way until release is called. It does so before the client
// is asked: a fake clientset answers one call at a time, whatever the call is about.
func (w *world) hold(pod string) (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := make(chan struct{})
	w.held = map[string]chan struct{}{pod: c}
	return func() { close(c) }
}

// pass waits while the Binding of a pod is held.
func (w *world) pass(pod string) {
	w.mu.Lock()
	c := w.held[pod]
	w.mu.Unlock()
	if c != nil {
		<-c
	}
}

// placement reads the placement on the Binding of a pod.
func (w *world) placement(pod string) sharing.Placement {
	w.t.Helper()
	b, _ := w.binding(pod)
	p, err := wire.DecodePlacement(b.Annotations[wire.PodPlacement])
	if err != nil {
		w.t.Fatalf("the placement on the Binding of pod %s: %v", pod, err)
	}
	return p
}

// bindCalls is the number of Bindings sent.
func (w *world) bindCalls() int {
	n := 0
	for _, a := range w.client.Actions() {
		if a.Matches("create", "pods/binding") {
			n++
		}
	}
	return n
}

// settled runs sessions until nothing is assumed any more.
func (w *world) settled() {
	w.t.Helper()
	w.eventually("nothing is assumed", func() bool {
		w.schedule()
		return w.store.cluster.Pods().Decisions() == 0
	})
}

// task finds a task of the session by the name of its pod.
func (w *world) task(ssn *framework.Session, pod string) *api.TaskInfo {
	w.t.Helper()
	for _, j := range ssn.Jobs {
		if t, ok := j.Tasks[api.TaskID("uid-"+pod)]; ok {
			return t
		}
	}
	w.t.Fatalf("no task for pod %s", pod)
	return nil
}
