// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
)

// Pod is one that no node of the cluster has room for.
type Pod struct {
	Object  *corev1.Pod
	Request sharing.PodRequest
	// Backends and Policy are those that place it.
	Backends sharing.Backends
	Policy   policy.Policy
	// shape is equal for pods that ask for the same and may be on the same nodes.
	shape string
}

// Amounts are sums of resources in thousandths of their units.
type Amounts map[corev1.ResourceName]int64

// AmountsOf returns a list as Amounts.
func AmountsOf(list corev1.ResourceList) Amounts {
	a := make(Amounts, len(list))
	for name, q := range list {
		a[name] = q.MilliValue()
	}
	return a
}

// requestsOf is what a pod asks for in all, and a place for itself.
func requestsOf(pod *corev1.Pod) Amounts {
	a := AmountsOf(resource.PodRequests(pod, resource.PodResourcesOptions{}))
	a[corev1.ResourcePods] = 1000
	return a
}

// takeIfFits takes what is asked for; false changes nothing.
func (a Amounts) takeIfFits(asked Amounts) bool {
	for name, n := range asked {
		if n > a[name] {
			return false
		}
	}
	for name, n := range asked {
		a[name] -= n
	}
	return true
}

// newHost is a new node with what has been put on it.
type newHost struct {
	of     *NodeType
	ledger *sharing.Ledger
	free   Amounts
	pods   []*Pod
	// joins says that there is such a node already, without its devices.
	joins bool
}

func (t *NodeType) newHost(b sharing.Backends, joins bool) *newHost {
	return &newHost{of: t, ledger: sharing.NewLedger(t.Inventory, b), free: AmountsOf(t.Node.Status.Allocatable), joins: joins}
}

// placePod puts a pod on the node; false changes nothing. notSummed is a resource without a sum.
func (h *newHost) placePod(p *Pod, notSummed string) bool {
	if nodes.KeptOff(p.Object, h.of.Node) != "" {
		return false
	}
	placement, refusals := place.Place(h.ledger.Views(), &p.Request, p.Backends, p.Policy)
	if refusals.Refused() {
		return false
	}
	asked := requestsOf(p.Object)
	delete(asked, corev1.ResourceName(notSummed))
	if !h.free.takeIfFits(asked) {
		return false
	}
	h.ledger.Record(p.Request.Owner, placement)
	h.pods = append(h.pods, p)
	return true
}

// filling packs pods on new nodes.
type filling struct {
	types    []NodeType
	settings *nodes.Settings
	hosts    []*newHost
}

// packPods packs pods on nodes that join, and on as many new ones as it takes, of the types that
// take the fewest devices: pods of a shape after each other, the largest first.
func packPods(pods []Pod, types []NodeType, joining map[string]int, b sharing.Backends, s *nodes.Settings) *filling {
	f := &filling{types: types, settings: s}
	for i := range types {
		for range joining[types[i].Name] {
			f.hosts = append(f.hosts, types[i].newHost(b, true))
		}
	}
	for _, alike := range byShape(pods) {
		f.packShape(alike, b)
	}
	return f
}

// packShape packs pods of one shape.
func (f *filling) packShape(alike []*Pod, b sharing.Backends) {
	for _, h := range f.hosts {
		for len(alike) > 0 && h.placePod(alike[0], f.settings.Names.Percentage) {
			alike = alike[1:]
		}
	}
	if len(alike) == 0 {
		return
	}
	var best []*newHost
	for i := range f.types {
		if hosts := f.fillType(&f.types[i], alike, b); hosts != nil && (best == nil || countDevices(hosts) < countDevices(best)) {
			best = hosts
		}
	}
	f.hosts = append(f.hosts, best...)
}

// fillType packs pods of one shape on new nodes of a type, nil if it does not serve them.
func (f *filling) fillType(t *NodeType, alike []*Pod, b sharing.Backends) []*newHost {
	var hosts []*newHost
	for len(alike) > 0 {
		h, before := t.newHost(b, false), len(alike)
		for len(alike) > 0 && h.placePod(alike[0], f.settings.Names.Percentage) {
			alike = alike[1:]
		}
		if len(alike) == before {
			return nil
		}
		hosts = append(hosts, h)
	}
	return hosts
}

func countDevices(hosts []*newHost) int {
	n := 0
	for _, h := range hosts {
		n += len(h.of.Inventory.Devices)
	}
	return n
}

// byShape divides pods into those that ask for the same and may be on the same nodes, the largest
// first.
func byShape(pods []Pod) [][]*Pod {
	shapes := map[string][]*Pod{}
	for i := range pods {
		key := shapeOf(&pods[i])
		pods[i].shape = key
		shapes[key] = append(shapes[key], &pods[i])
	}
	keys := slices.SortedFunc(maps.Keys(shapes), func(a, b string) int {
		x, y := sizeOf(&shapes[a][0].Request), sizeOf(&shapes[b][0].Request)
		return cmp.Or(cmp.Compare(y.devices, x.devices), cmp.Compare(y.memory, x.memory), cmp.Compare(a, b))
	})
	var out [][]*Pod
	for _, key := range keys {
		slices.SortFunc(shapes[key], func(a, b *Pod) int {
			return cmp.Or(cmp.Compare(a.Object.Namespace, b.Object.Namespace), cmp.Compare(a.Object.Name, b.Object.Name))
		})
		out = append(out, shapes[key])
	}
	return out
}

func shapeOf(p *Pod) string {
	r, spec := p.Request, &p.Object.Spec
	r.Owner, r.Neighbours, r.Mates = "", nil, nil
	where, err := json.Marshal([]any{spec.NodeSelector, spec.Affinity, spec.Tolerations, requestsOf(p.Object)})
	if err != nil {
		return string(p.Object.UID)
	}
	return fmt.Sprintf("%+v %s %s", r, p.Request.Neighbours.Rules(), where)
}

// size is how much a pod asks for at once.
type size struct {
	devices int
	memory  sharing.Bytes
}

func sizeOf(r *sharing.PodRequest) size {
	var s size
	for i := range r.Requests {
		s.devices = max(s.devices, r.Requests[i].Count)
		s.memory = max(s.memory, r.Requests[i].Memory.On(sharing.MaxBytes))
	}
	return s
}
