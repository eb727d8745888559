// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	schedulingv1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"deviceshare/config"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/wire"
	"deviceshare/view/capture"
)

// Cluster is a cluster as the scheduler would read it. It is not changed after Read.
type Cluster struct {
	state    *capture.State
	settings nodes.Settings
	backends sharing.Backends
	// nodes are in the order of their names; those without devices are among them.
	nodes  []*nodes.Node
	owners map[sharing.Owner]*corev1.Pod
	groups map[types.NamespacedName]*schedulingv1beta1.PodGroup
	// configMistakes are why the device configuration is not used.
	configMistakes []string
}

// Read reads a state with the code by which the scheduler reads snapshots.
func Read(s *capture.State, b sharing.Backends) *Cluster {
	c := &Cluster{
		state: s, backends: b, settings: nodes.DefaultSettings(),
		owners: map[sharing.Owner]*corev1.Pod{}, groups: map[types.NamespacedName]*schedulingv1beta1.PodGroup{},
	}
	c.readConfig()
	for _, g := range s.Groups {
		c.groups[types.NamespacedName{Namespace: g.Namespace, Name: g.Name}] = g
	}
	snapshot := &snapshot{hosts: make(map[string]*host, len(s.Nodes))}
	for _, n := range s.Nodes {
		snapshot.hosts[n.Name] = &host{node: n}
	}
	for _, p := range s.Pods {
		c.owners[sharing.Owner(p.UID)] = p
		if on := snapshot.hosts[p.Spec.NodeName]; on != nil && !hasEnded(p) {
			on.pods = append(on.pods, p)
		}
	}
	cluster := nodes.NewCluster(b, silent{})
	cluster.Follow(snapshot, &c.settings, s.Taken)
	c.nodes = slices.SortedFunc(maps.Values(cluster.Nodes()), func(a, b *nodes.Node) int { return cmp.Compare(a.Name, b.Name) })
	return c
}

// readConfig takes names, factor and defaults from the device configuration.
func (c *Cluster) readConfig() {
	if c.state.DeviceConfig == nil {
		return
	}
	d, problems := config.LoadDevice([]byte(*c.state.DeviceConfig))
	for _, p := range problems {
		c.configMistakes = append(c.configMistakes, p.String())
	}
	if len(problems) == 0 {
		c.settings = nodes.Settings{Names: d.Names(), Factor: d.MemoryFactor, Defaults: d.Defaults()}
	}
}

// hasEnded reports whether a pod has ended and holds nothing any more.
func hasEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// isWaiting reports whether a pod that asks for devices has no node yet.
func (c *Cluster) isWaiting(p *corev1.Pod) bool {
	return p.Spec.NodeName == "" && !hasEnded(p) && p.DeletionTimestamp == nil && c.asksForDevices(p)
}

// asksForDevices reports whether a pod asks for devices, or by names that nobody serves.
func (c *Cluster) asksForDevices(p *corev1.Pod) bool {
	return corepod.Asks(p, c.settings.Names) || corepod.AsksUnserved(p, c.settings.Names)
}

func (c *Cluster) findPod(namespace, name string) (*corev1.Pod, bool) {
	i := slices.IndexFunc(c.state.Pods, func(p *corev1.Pod) bool { return p.Namespace == namespace && p.Name == name })
	if i < 0 {
		return nil, false
	}
	return c.state.Pods[i], true
}

// GroupOf returns the name of the pod's group; false if it names none.
func GroupOf(p *corev1.Pod) (types.NamespacedName, bool) {
	name := cmp.Or(p.Annotations[wire.GroupName], p.Annotations[wire.VolcanoGroupName])
	return types.NamespacedName{Namespace: p.Namespace, Name: name}, name != ""
}

// nameOf is namespace/name of who holds shares; a pod that is not known is shown by its UID.
func (c *Cluster) nameOf(o sharing.Owner) string {
	if p, ok := c.owners[o]; ok {
		return p.Namespace + "/" + p.Name
	}
	return fmt.Sprintf("pod %s", o)
}

// snapshot shows a state to package nodes.
type snapshot struct{ hosts map[string]*host }

func (s *snapshot) Hosts() []nodes.Host {
	out := make([]nodes.Host, 0, len(s.hosts))
	for _, h := range s.hosts {
		out = append(out, h)
	}
	return out
}

func (s *snapshot) Host(name string) nodes.Host {
	if h, ok := s.hosts[name]; ok {
		return h
	}
	return nil
}

func (s *snapshot) Assigned(string, types.UID, string) *corev1.Pod { return nil }

// Pods implements nodes.Snapshot: no pod is known that the hosts do not show.
func (s *snapshot) Pods() corelisters.PodLister {
	return corelisters.NewPodLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))
}

// host is one node with the pods on it.
type host struct {
	node *corev1.Node
	pods []*corev1.Pod
}

func (h *host) Name() string { return h.node.Name }

func (h *host) Node() *corev1.Node { return h.node }

func (h *host) Len() int { return len(h.pods) }

// ShowsExactly implements nodes.Host: each state is read once.
func (h *host) ShowsExactly(map[string]*corev1.Pod) bool { return false }

func (h *host) Pods() iter.Seq2[string, *corev1.Pod] {
	return func(yield func(string, *corev1.Pod) bool) {
		for _, p := range h.pods {
			if !yield(p.Namespace+"/"+p.Name, p) {
				return
			}
		}
	}
}

func (h *host) Pod(name types.NamespacedName) *corev1.Pod {
	for _, p := range h.pods {
		if p.Namespace == name.Namespace && p.Name == name.Name {
			return p
		}
	}
	return nil
}

// silent reports nothing: problems are shown where people look.
type silent struct{}

func (silent) Report(*corev1.ObjectReference, string, string) {}
