// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/volcano/cmd/scheduler/app/options"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/cache"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"
	"volcano.sh/volcano/pkg/scheduler/metrics"

	"deviceshare/plugins/deviceshare"
	"deviceshare/plugins/deviceshare/holds"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/nodeorder"
	"deviceshare/sharing"
	"deviceshare/sharing/wire"
)

// Options are how a cluster schedules.
type Options struct {
	Backends sharing.Backends
	// Settings are those of the device configuration.
	Settings nodes.Settings
	// Config is the text of volcano-scheduler.conf, Shipped if empty.
	Config string
	// Policy is that of pods that name none, "" for the one of the configuration.
	Policy string
	// SchedulerName is whose pods are placed.
	SchedulerName string
	// Rested has pods move, too, that the scheduler might leave alone because they have moved or
	// were made a short time ago.
	Rested bool
	// OnlyMoves leaves out all actions by which pods leave that do not move. LimitMoves says how
	// many move.
	OnlyMoves bool
	// Now is the time that is written into annotations.
	Now time.Time
}

// Cluster is a cluster with its scheduler. It is for one goroutine.
type Cluster struct {
	schedulerName string
	store         *deviceshare.Store
	config        configuration
	cache         *sessionCache
	server        *server
	// movesNone leaves the action consolidate out.
	movesNone bool
}

// New makes a cluster without nodes. Queue default is made by the first cycle unless it was added.
func New(o Options) (*Cluster, error) {
	deviceshare.RegisterActions()
	config, err := readConfiguration(cmp.Or(o.Config, shipped), o.Policy, o.Rested)
	if err != nil {
		return nil, err
	}
	if o.SchedulerName == "" {
		return nil, errors.New("make a cluster: no name of a scheduler")
	}
	if o.OnlyMoves {
		config.keepMovesOnly()
	}
	s := newServer()
	store := deviceshare.NewStore(deviceshare.Options{Backends: o.Backends, Report: s, Evictions: s, Now: func() time.Time { return o.Now }})
	store.Configure(o.Settings)
	for i := range config.actions {
		config.actions[i] = store.Explained(store.MakingRoom(config.actions[i]))
	}
	// As the command of the scheduler does: the percentage has no meaningful sum.
	deviceshare.IgnoreSums(wire.ResourcePercentage)
	metrics.InitKubeSchedulerRelatedMetrics()
	nodeorder.Register()
	volcano := cache.NewCustomMockSchedulerCache(o.SchedulerName, nil, carriesNone{}, s, nil, &record.FakeRecorder{})
	options.ServerOpts.PercentageOfNodesToFind = 100
	ready := &atomic.Bool{}
	ready.Store(true)
	volcano.HyperNodesInfo = api.NewHyperNodesInfoWithCache(map[string]*api.HyperNodeInfo{}, map[int]sets.Set[string]{}, map[string]sets.Set[string]{}, ready)
	volcano.Client().(*fake.Clientset).PrependReactor("create", "pods", s.recordBinding)
	c := &Cluster{schedulerName: o.SchedulerName, store: store, config: config, server: s, cache: &sessionCache{SchedulerCache: volcano, server: s}}
	return c, nil
}

// Add adds an object: a Node, Pod, PodGroup, Queue, PriorityClass, Namespace or
// PodDisruptionBudget. One with the name of another takes its place. The object must not be changed
// afterwards. The status of a budget must count the pods that are added with a node.
func (c *Cluster) Add(object any) error {
	switch o := object.(type) {
	case *corev1.Node:
		if err := c.cache.AddOrUpdateNode(o); err != nil {
			return fmt.Errorf("add node %s: %w", o.Name, err)
		}
		return c.cache.SharedInformerFactory().Core().V1().Nodes().Informer().GetIndexer().Add(o)
	case *corev1.Pod:
		return c.addPod(o)
	case *schedulingv1beta1.PodGroup:
		c.server.groups[nameOf(o)] = o
		c.cache.AddPodGroupV1beta1(o)
	case *schedulingv1beta1.Queue:
		c.server.queues.Insert(o.Name)
		c.cache.AddQueueV1beta1(o)
	case *schedulingv1.PriorityClass:
		c.cache.AddPriorityClass(o)
	case *policyv1.PodDisruptionBudget:
		return c.addBudget(o)
	case *corev1.Namespace:
		return c.cache.SharedInformerFactory().Core().V1().Namespaces().Informer().GetIndexer().Add(o)
	case *corev1.ResourceQuota:
		return c.cache.SharedInformerFactory().Core().V1().ResourceQuotas().Informer().GetIndexer().Add(o)
	default:
		return fmt.Errorf("add an object to the cluster: it is a %T", object)
	}
	return nil
}

// addPod adds a pod that the scheduler is to place or that takes something of a node.
func (c *Cluster) addPod(p *corev1.Pod) error {
	name := nameOf(p)
	if before := c.server.pods[name]; before != nil {
		if err := c.deletePod(before); err != nil {
			return err
		}
	}
	c.server.pods[name] = p
	known := p.DeepCopy() // Volcano writes the node it tries into the pod, and leaves it there
	if err := c.podIndexer().Add(known); err != nil {
		return fmt.Errorf("add pod %s: %w", name, err)
	}
	if c.belongsInCache(p) {
		c.cache.AddPod(known)
	}
	return nil
}

func (c *Cluster) belongsInCache(p *corev1.Pod) bool {
	return p.Spec.NodeName != "" || p.Spec.SchedulerName == c.schedulerName
}

// RemovePod removes a pod, which the budgets that select it then lack. One that is not there is no
// error.
func (c *Cluster) RemovePod(name types.NamespacedName) error {
	p := c.server.pods[name]
	if p == nil {
		return nil
	}
	return errors.Join(c.deletePod(p), c.updateBudgets(p, -1))
}

func (c *Cluster) deletePod(p *corev1.Pod) error {
	name := nameOf(p)
	delete(c.server.pods, name)
	delete(c.server.said, p.UID)
	if c.belongsInCache(p) {
		c.cache.DeletePod(p)
	}
	if err := c.podIndexer().Delete(p); err != nil {
		return fmt.Errorf("remove pod %s: %w", name, err)
	}
	return nil
}

// RemoveGroup removes a group, whose pods must have been removed.
func (c *Cluster) RemoveGroup(name types.NamespacedName) {
	delete(c.server.groups, name)
	c.cache.removeJob(api.JobID(name.String()))
}

// Pods returns all pods as they are now, in the order of their names.
func (c *Cluster) Pods() []*corev1.Pod {
	return slices.SortedFunc(maps.Values(c.server.pods), byName[*corev1.Pod])
}

// Pod returns a pod as it is now, false if it is gone.
func (c *Cluster) Pod(name types.NamespacedName) (*corev1.Pod, bool) {
	p, ok := c.server.pods[name]
	return p, ok
}

// Groups returns all groups as they are now, in the order of their names.
func (c *Cluster) Groups() []*schedulingv1beta1.PodGroup {
	return slices.SortedFunc(maps.Values(c.server.groups), byName[*schedulingv1beta1.PodGroup])
}

// Why returns what a pod that waits was told, which is the message of its condition; "" if nothing.
func (c *Cluster) Why(p *corev1.Pod) string { return c.server.said[p.UID] }

// Evicted returns the pods that were evicted so far, in their order.
func (c *Cluster) Evicted() []Eviction { return c.server.evicted }

// Problems returns what the scheduler reported, each once.
func (c *Cluster) Problems() []string { return c.server.problems }

// Cycle runs one cycle of the scheduler and carries out what it decided. It reports whether the
// cluster is another one than before: if not, neither would the next cycle change anything.
func (c *Cluster) Cycle() (changed bool, err error) {
	if !c.server.queues.Has(defaultQueue) {
		if err := c.Add(&schedulingv1beta1.Queue{
			ObjectMeta: metaNamed(defaultQueue), Spec: schedulingv1beta1.QueueSpec{Weight: 1},
			Status: schedulingv1beta1.QueueStatus{State: schedulingv1beta1.QueueStateOpen},
		}); err != nil {
			return false, err
		}
	}
	deviceshare.Register(c.store.Build)
	conf.EnabledActionMap = c.config.enabledActions()
	c.cache.resetDecisions()
	ssn := framework.OpenSession(c.cache, c.config.tiers, c.config.arguments)
	for _, a := range c.config.actions {
		if !c.movesNone || a.Name() != holds.Consolidate {
			a.Execute(ssn)
		}
	}
	framework.CloseSession(ssn)
	return c.carryOut()
}

// mostCycles bounds Settle. Each cycle but the last places or evicts a pod or lets a group in, so
// a cluster that goes on for longer evicts in circles.
const mostCycles = 1000

// Settle runs cycles until one changes nothing, and returns how many it ran.
func (c *Cluster) Settle() (int, error) {
	for n := 1; n <= mostCycles; n++ {
		changed, err := c.Cycle()
		if err != nil || !changed {
			return n, err
		}
	}
	return mostCycles, fmt.Errorf("simulate the scheduler: after %d cycles it still evicts or places pods", mostCycles)
}

// RemoveNode removes a node, whose pods must have been removed.
func (c *Cluster) RemoveNode(n *corev1.Node) error {
	if err := c.cache.RemoveNode(n.Name); err != nil {
		return fmt.Errorf("remove node %s: %w", n.Name, err)
	}
	return c.cache.SharedInformerFactory().Core().V1().Nodes().Informer().GetIndexer().Delete(n)
}
