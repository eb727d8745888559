// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/keymutex"

	"deviceshare/plugins/deviceshare/claimstate"
	"deviceshare/sharing"
	"deviceshare/sharing/claimspec/coreclaim"
	"deviceshare/sharing/wire"
)

// Claim is one claim as it was last seen. It is never changed: what differs makes another one, so
// that equal pointers mean an equal claim.
type Claim struct {
	Object *resourcev1.ResourceClaim
	// Node is where it has devices, or is about to get them; "" if it has none.
	Node string
	// Written says that the status has the allocation.
	Written bool
}

// Held is what a claim holds of the devices of a node.
type Held struct {
	Owner     sharing.Owner
	Name      types.NamespacedName
	Node      string
	Placement sharing.Placement
	// Queue is charged for it, "" if that is not known.
	Queue string
	// Unreadable is why it is not known what the claim holds, nil if it is.
	Unreadable error
	// Pods are those that its status says may use it.
	Pods []types.UID
	// IsLost says that the claim has no allocation any more. It holds as long as one of Pods is
	// there.
	IsLost bool
}

// OnNode is what claims hold of one node. It is never changed, see Claim.
type OnNode struct {
	Held []Held
}

// Of returns what a claim holds on the node, nil if it holds nothing. It may be called on nil.
func (o *OnNode) Of(owner sharing.Owner) *Held {
	if o == nil {
		return nil
	}
	for i := range o.Held {
		if o.Held[i].Owner == owner {
			return &o.Held[i]
		}
	}
	return nil
}

// record is what is known of one claim. A record with neither object nor lost is dropped.
type record struct {
	claim *Claim // nil once it is gone
	held  *Held  // by the status
	lost  *Held
	state claimstate.State
}

// Registry keeps the claims of a cluster. Safe for concurrent use: an informer, sessions and
// goroutines that bind write, workers read. A nil *Registry has no claims.
type Registry struct {
	mu      sync.RWMutex
	records map[sharing.Owner]*record
	names   map[types.NamespacedName]sharing.Owner
	// nodes are the owners with devices of a node, views what was last made of them.
	nodes map[string]map[sharing.Owner]struct{}
	views map[string]*OnNode
	// binds are pods that a session gave a claim to and that were not bound yet.
	binds map[types.UID]Bind
	// locks has one lock for each claim, shared by some.
	locks keymutex.KeyMutex
}

// locksAtOnce is more than there are bind calls at a time.
const locksAtOnce = 256

// NewRegistry returns a registry that knows no claims.
func NewRegistry() *Registry {
	return &Registry{
		records: map[sharing.Owner]*record{}, names: map[types.NamespacedName]sharing.Owner{},
		nodes: map[string]map[sharing.Owner]struct{}{}, views: map[string]*OnNode{}, binds: map[types.UID]Bind{}, locks: keymutex.NewHashed(locksAtOnce),
	}
}

// Find returns the claim of a name, nil if it is not known.
func (r *Registry) Find(name types.NamespacedName) *Claim {
	if r == nil {
		return nil
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	if rec := r.records[r.names[name]]; rec != nil {
		return rec.claim
	}
	return nil
}

// On returns what claims hold of a node, nil if they hold nothing. It is the same pointer as long
// as nothing changes.
func (r *Registry) On(node string) *OnNode {
	if r == nil {
		return nil
	}
	r.mu.RLock()
	view, known := r.views[node]
	isEmpty := len(r.nodes[node]) == 0
	r.mu.RUnlock()
	if known || isEmpty {
		return view
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	view = &OnNode{}
	for owner := range r.nodes[node] {
		if h := r.records[owner].currentHolding(owner); h != nil && h.Node == node {
			view.Held = append(view.Held, *h)
		}
	}
	slices.SortFunc(view.Held, func(a, b Held) int { return cmp.Compare(a.Owner, b.Owner) })
	r.views[node] = view
	return view
}

// currentHolding returns what a claim holds, nil if it holds nothing: what its status says comes
// first.
func (rec *record) currentHolding(owner sharing.Owner) *Held {
	switch d := rec.state.Decision(); {
	case rec.held != nil:
		return rec.held
	case d != nil:
		return &Held{Owner: owner, Name: nameOf(rec.claim), Node: d.Node, Placement: d.Placement, Queue: d.Queue}
	}
	return rec.lost
}

func nameOf(c *Claim) types.NamespacedName {
	if c == nil {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: c.Object.Namespace, Name: c.Object.Name}
}

// Observe takes in a claim as an informer or a write shows it. One that is older than what is known
// is ignored.
func (r *Registry) Observe(object *resourcev1.ResourceClaim) {
	owner := sharing.Owner(object.UID)
	held := readHeld(object)
	r.mu.Lock()
	defer r.mu.Unlock()
	name := types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
	if other, known := r.names[name]; known && other != owner {
		r.removeClaim(other) // deleted and made again between two looks
	}
	rec := r.records[owner]
	if rec != nil && rec.claim != nil && (rec.claim.Object == object || versionOf(object) < versionOf(rec.claim.Object)) {
		return
	}
	r.updateRecord(owner, func(rec *record) {
		if rec.held != nil && held == nil {
			rec.lost = lostOf(rec.held)
		}
		rec.claim, rec.held = &Claim{Object: object}, held
		if held != nil {
			rec.lost = nil
		}
		rec.state = rec.state.After(claimstate.Event{Kind: claimstate.Read, Version: versionOf(object), Allocated: object.Status.Allocation != nil})
	})
	r.names[name] = owner
}

// Remove takes in that a claim was deleted.
func (r *Registry) Remove(object *resourcev1.ResourceClaim) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.removeClaim(sharing.Owner(object.UID))
}

func (r *Registry) removeClaim(owner sharing.Owner) {
	rec := r.records[owner]
	if rec == nil || rec.claim == nil {
		return
	}
	if name := nameOf(rec.claim); r.names[name] == owner {
		delete(r.names, name)
	}
	r.updateRecord(owner, func(rec *record) {
		if rec.held != nil {
			rec.lost = lostOf(rec.held)
		}
		rec.claim, rec.held = nil, nil
		rec.state = rec.state.After(claimstate.Event{Kind: claimstate.Gone})
	})
}

// Forget drops claims that were lost, because no pod that had one of them is on the node any more.
func (r *Registry) Forget(lost []sharing.Owner) {
	if r == nil || len(lost) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, owner := range lost {
		if r.records[owner] != nil {
			r.updateRecord(owner, func(rec *record) { rec.lost = nil })
		}
	}
}

// lostOf returns what a claim goes on holding that has no allocation any more; nil if no pod had
// it.
func lostOf(h *Held) *Held {
	if len(h.Pods) == 0 {
		return nil
	}
	lost := *h
	lost.IsLost = true
	return &lost
}

// readHeld returns what the status of a claim says that it holds, nil if it has nothing of ours.
func readHeld(object *resourcev1.ResourceClaim) *Held {
	p, err := coreclaim.ReadPlacement(object)
	if errors.Is(err, coreclaim.ErrNotOurs) {
		return nil
	}
	h := &Held{
		Owner: sharing.Owner(object.UID), Name: types.NamespacedName{Namespace: object.Namespace, Name: object.Name},
		Node: p.Placement.Node, Placement: p.Placement, Queue: p.Queue, Unreadable: err,
	}
	for i := range object.Status.ReservedFor {
		h.Pods = append(h.Pods, object.Status.ReservedFor[i].UID)
	}
	if err == nil && !slices.Equal(resultsOf(object), resultNames(&p.Placement)) {
		h.Unreadable = errors.New("its results name other devices than its placement")
	}
	if h.Unreadable != nil {
		h.Node = coreclaim.OurResults(object)[0].Pool // a pool is named as its node is
	}
	return h
}

// resultsOf returns which devices of ours the results of an allocation name, sorted.
func resultsOf(object *resourcev1.ResourceClaim) (names []string) {
	for _, result := range coreclaim.OurResults(object) {
		names = append(names, result.Pool+"/"+result.Device)
	}
	slices.Sort(names)
	return names
}

func resultNames(p *sharing.Placement) (names []string) {
	for i := range p.Containers {
		for j := range p.Containers[i].Shares {
			names = append(names, p.Node+"/"+wire.ClaimDevice(&p.Containers[i].Shares[j]))
		}
	}
	slices.Sort(names)
	return names
}

// versionOf returns the resource version of an object as a number, 0 if it is none: API servers
// write numbers that grow, see "Resource versions" in Kubernetes' API concepts.
func versionOf(object *resourcev1.ResourceClaim) uint64 {
	n, err := strconv.ParseUint(object.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// updateRecord applies a change to the record of a claim and keeps the indexes in step. The lock is
// held.
func (r *Registry) updateRecord(owner sharing.Owner, apply func(*record)) {
	rec := r.records[owner]
	if rec == nil {
		rec = &record{}
		r.records[owner] = rec
	}
	r.removeFromIndex(owner, rec)
	apply(rec)
	if rec.claim == nil && rec.lost == nil && rec.state.Decision() == nil {
		delete(r.records, owner)
		return
	}
	if h := rec.currentHolding(owner); h != nil {
		if r.nodes[h.Node] == nil {
			r.nodes[h.Node] = map[sharing.Owner]struct{}{}
		}
		r.nodes[h.Node][owner] = struct{}{}
		delete(r.views, h.Node)
	}
	if rec.claim != nil {
		now := Claim{Object: rec.claim.Object, Written: rec.held != nil}
		if h := rec.currentHolding(owner); h != nil && !h.IsLost {
			now.Node = h.Node
		}
		if now != *rec.claim {
			rec.claim = &now
		}
	}
}

func (r *Registry) removeFromIndex(owner sharing.Owner, rec *record) {
	h := rec.currentHolding(owner)
	if h == nil {
		return
	}
	delete(r.nodes[h.Node], owner)
	if len(r.nodes[h.Node]) == 0 {
		delete(r.nodes, h.Node)
	}
	delete(r.views, h.Node)
}
