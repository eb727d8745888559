// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	k8stesting "k8s.io/client-go/testing"
	clientcache "k8s.io/client-go/tools/cache"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	shardv1alpha1 "volcano.sh/apis/pkg/apis/shard/v1alpha1"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/cache"

	"deviceshare/plugins/deviceshare/evictor"
)

// defaultQueue is the queue of groups that name none.
const defaultQueue = "default"

// sessionCache is Volcano's cache without the goroutines that carry out what sessions decide.
type sessionCache struct {
	*cache.SchedulerCache
	binds  []*cache.BindContext
	server *server
}

// Eviction is a pod that had to leave.
type Eviction struct {
	Pod    *corev1.Pod
	Reason string
	// Event is the event that the pod is given, "" if Volcano evicts it by itself.
	Event string
}

func (s *sessionCache) resetDecisions() { s.binds = nil }

// AddBindTask implements cache.Cache: it takes from the queue what Volcano has just put into it.
func (s *sessionCache) AddBindTask(b *cache.BindContext) error {
	if err := s.SchedulerCache.AddBindTask(b); err != nil {
		return err
	}
	s.binds = append(s.binds, <-s.BindFlowChannel)
	return nil
}

// Evict implements cache.Cache, for actions that evict by themselves.
func (s *sessionCache) Evict(t *api.TaskInfo, reason string) error {
	if err := s.SchedulerCache.Evict(t, reason); err != nil {
		return err
	}
	s.server.leaves = append(s.server.leaves, Eviction{Pod: t.Pod, Reason: reason})
	return nil
}

// removeJob removes a job: Volcano removes it in a goroutine, which this cache does not have.
func (s *sessionCache) removeJob(job api.JobID) {
	s.Mutex.Lock()
	defer s.Mutex.Unlock()
	delete(s.Jobs, job)
}

// server is what the API server knows. Volcano calls it from several goroutines while a session
// closes; mu guards the fields that those write.
type server struct {
	pods   map[types.NamespacedName]*corev1.Pod
	groups map[types.NamespacedName]*schedulingv1beta1.PodGroup
	queues sets.Set[string]
	// budgets are the PodDisruptionBudgets by namespace and name.
	budgets map[string]map[string]*budget
	// evicted are the pods that had to leave, in their order; leaves are those of this session.
	evicted, leaves []Eviction
	// bound are the Bindings of the pods that are being bound.
	bound map[types.NamespacedName]*corev1.Binding

	mu sync.Mutex
	// said are the messages of the conditions of pods that wait.
	said map[types.UID]string
	// phases are what the session wrote of groups.
	phases   map[types.NamespacedName]schedulingv1beta1.PodGroupPhase
	problems []string
}

func newServer() *server {
	return &server{
		pods: map[types.NamespacedName]*corev1.Pod{}, groups: map[types.NamespacedName]*schedulingv1beta1.PodGroup{},
		queues: sets.Set[string]{}, bound: map[types.NamespacedName]*corev1.Binding{}, said: map[types.UID]string{},
		phases: map[types.NamespacedName]schedulingv1beta1.PodGroupPhase{}, budgets: map[string]map[string]*budget{},
	}
}

// recordBinding is the API server's side of a Binding.
func (s *server) recordBinding(action k8stesting.Action) (bool, runtime.Object, error) {
	create, ok := action.(k8stesting.CreateAction)
	if !ok || action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	b := create.GetObject().(*corev1.Binding)
	s.bound[types.NamespacedName{Namespace: action.GetNamespace(), Name: b.Name}] = b
	return true, b, nil
}

// carriesNone is the evictor of Volcano's own cache: what a session evicts goes to the server.
type carriesNone struct{}

func (carriesNone) Evict(*corev1.Pod, string) error { return nil }

// Evict implements room.Evictions: evictions are carried out after the session.
func (s *server) Evict(_ kubernetes.Interface, v evictor.Eviction) {
	if p := s.pods[v.Pod]; p != nil && !slices.ContainsFunc(s.leaves, func(e Eviction) bool { return e.Pod == p }) {
		s.leaves = append(s.leaves, Eviction{Pod: p, Reason: v.Why, Event: v.Event})
	}
}

// ClearNomination implements room.Evictions: no pod names a node before it is bound.
func (s *server) ClearNomination(kubernetes.Interface, types.NamespacedName, types.UID) {}

// Len implements room.Evictions.
func (s *server) Len() int { return 0 }

// Close implements room.Evictions.
func (s *server) Close() {}

func (s *server) UpdatePodStatus(p *corev1.Pod) (*corev1.Pod, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled {
			s.said[p.UID] = c.Message
		}
	}
	return p, nil
}

func (s *server) UpdatePodGroup(g *api.PodGroup) (*api.PodGroup, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.phases[types.NamespacedName{Namespace: g.Namespace, Name: g.Name}] = schedulingv1beta1.PodGroupPhase(g.Status.Phase)
	return g, nil
}

// UpdateQueueStatus implements cache.StatusUpdater: nothing of it is read again.
func (s *server) UpdateQueueStatus(*api.QueueInfo) error { return nil }

// UpdateNodeShardStatus implements cache.StatusUpdater: there are no shards.
func (s *server) UpdateNodeShardStatus(n *shardv1alpha1.NodeShard) (*shardv1alpha1.NodeShard, error) {
	return n, nil
}

func (s *server) Report(o *corev1.ObjectReference, reason, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	on := strings.TrimPrefix(o.Namespace+"/"+o.Name, "/")
	if text := fmt.Sprintf("%s %s: %s: %s", o.Kind, on, reason, message); !slices.Contains(s.problems, text) {
		s.problems = append(s.problems, text)
	}
}

// Tell implements deviceshare.Reporter: what is no problem shows in placements.
func (s *server) Tell(*corev1.ObjectReference, string, string) {}

// carryOut does what a session decided, in the order in which it did. It reports whether anything
// is different now.
func (c *Cluster) carryOut() (changed bool, err error) {
	changed = len(c.server.leaves)+len(c.cache.binds) > 0
	for _, e := range c.server.leaves {
		if err := c.RemovePod(nameOf(e.Pod)); err != nil {
			return false, err
		}
		c.server.evicted = append(c.server.evicted, e)
	}
	c.server.leaves = nil
	for _, b := range c.cache.binds {
		if err := c.bindAndRun(b.TaskInfo); err != nil {
			return false, err
		}
	}
	for name, phase := range c.server.phases {
		g := c.server.groups[name]
		if g == nil || g.Status.Phase == phase {
			continue
		}
		changed, g = true, g.DeepCopy()
		g.Status.Phase = phase
		if err := c.Add(g); err != nil {
			return false, err
		}
	}
	clear(c.server.phases)
	return changed, nil
}

// bindAndRun binds a pod through the scheduler's binder, and has it run.
func (c *Cluster) bindAndRun(t *api.TaskInfo) error {
	name := nameOf(t.Pod)
	if failed := c.store.Binder().Bind(c.cache.Client(), []*api.TaskInfo{t}); len(failed) > 0 {
		return fmt.Errorf("bind pod %s: %s", name, failed[t.UID])
	}
	before, b := c.server.pods[name], c.server.bound[name]
	delete(c.server.bound, name)
	if before == nil || b == nil {
		return fmt.Errorf("bind pod %s: the pod or its binding is not there", name)
	}
	after := before.DeepCopy()
	after.Spec.NodeName, after.Status.Phase = b.Target.Name, corev1.PodRunning
	after.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}}
	for _, key := range slices.Sorted(maps.Keys(b.Annotations)) {
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, key, b.Annotations[key])
	}
	c.server.pods[name] = after
	delete(c.server.said, after.UID)
	known := after.DeepCopy()
	c.cache.UpdatePod(before, known)
	if err := c.podIndexer().Update(known); err != nil {
		return fmt.Errorf("bind pod %s: %w", name, err)
	}
	return c.updateBudgets(after, 1)
}

func (c *Cluster) podIndexer() clientcache.Indexer {
	return c.cache.SharedInformerFactory().Core().V1().Pods().Informer().GetIndexer()
}

func nameOf(o metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
}

func metaNamed(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

func byName[T metav1.Object](a, b T) int {
	return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}
