// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/queues"
	"deviceshare/sharing"
	"deviceshare/sharing/place"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/quota"
)

// overlay is what one session reserves on top of the snapshot. A node's ledger is copied
// when it is first written. Only the session goroutine writes, and never while predicates
// run.
//
// What a node can promise once the pods that are leaving it are gone is derived from the
// snapshot's own task list on demand. So evictions, and undoing them, need no bookkeeping.
type overlay struct {
	ledgers map[string]*sharing.Ledger
	placed  map[sharing.Owner]reservation
	// joined are the claims of pods that the session has put on a node.
	joined map[sharing.Owner]sharing.Owner
	// futures are derived ledgers by node name. Workers fill it.
	futures sync.Map
}

// reservation is what a session gave to one pod.
type reservation struct {
	node      string
	placement sharing.Placement
}

func newOverlay() *overlay {
	return &overlay{ledgers: map[string]*sharing.Ledger{}, placed: map[sharing.Owner]reservation{}, joined: map[sharing.Owner]sharing.Owner{}}
}

// currentLedger returns the node's ledger as it is. Pods that are leaving still hold their devices,
// and devices promised to waiting pods are not free either.
func (o *overlay) currentLedger(n *nodes.Node) *sharing.Ledger {
	if l, ok := o.ledgers[n.Name]; ok {
		return l
	}
	return n.Ledger
}

// futureLedger returns the node's ledger as it will be when the pods that are leaving are gone.
func (o *overlay) futureLedger(n *nodes.Node, info *api.NodeInfo) *sharing.Ledger {
	if l, ok := o.futures.Load(n.Name); ok {
		return l.(*sharing.Ledger)
	}
	ledger := o.currentLedger(n).Fork()
	for _, t := range info.Tasks {
		if t.Status == api.Releasing {
			ledger.Release(sharing.Owner(t.Pod.UID))
		}
	}
	o.futures.Store(n.Name, ledger)
	return ledger
}

// forgetFuture drops the derived ledger. Call it when a pod of the node began to leave, or
// an eviction was undone.
func (o *overlay) forgetFuture(node string) { o.futures.Delete(node) }

// findPlacement finds devices on a ledger of one node, within what the pod may take of its queue.
// The answer is a placement, or what the devices lack, or which limit of a queue every choice of
// them would exceed. It changes nothing.
func findPlacement(l *sharing.Ledger, n *nodes.Node, req *sharing.PodRequest, b sharing.Backends, p policy.Policy, w *queues.Allowance) (sharing.Placement, sharing.Refusals, *quota.Shortage) {
	views := l.Views()
	var first *quota.Shortage
	for {
		placement, refused := place.Place(views, req, b, p)
		switch {
		case refused.Refused() && first == nil:
			return sharing.Placement{}, refused, nil
		case refused.Refused():
			return sharing.Placement{}, sharing.Refusals{}, first
		case w != nil:
			if short := w.ShortOf(quota.Held(&placement, n.Inventory)); short != nil {
				first = cmp.Or(first, short)
				views = viewsWithout(views, queues.LargestCharge(short, &placement, n.Inventory))
				continue
			}
		}
		placement.Node = n.Name
		if hasPartition(&placement) {
			placement.GeometryHash = n.Inventory.GeometryHash
		}
		return placement, refused, nil
	}
}

// viewsWithout returns the views of all devices but one: a smaller device, or one of another
// model, may be within a limit that this one exceeds.
func viewsWithout(views []sharing.View, id sharing.DeviceID) []sharing.View {
	return slices.DeleteFunc(slices.Clone(views), func(v sharing.View) bool { return v.Device.ID == id })
}

// jobMates returns the other pods of the task's job on the node, in a stable order.
func jobMates(t *api.TaskInfo, info *api.NodeInfo) []sharing.Owner {
	if t.Job == "" || info == nil {
		return nil
	}
	var all []sharing.Owner
	for _, other := range info.Tasks {
		if other.Job == t.Job && other.UID != t.UID {
			all = append(all, sharing.Owner(other.Pod.UID))
		}
	}
	slices.Sort(all)
	return all
}

// hasPartition reports whether any share is a partition: only those depend on the
// geometries that the node applied.
func hasPartition(p *sharing.Placement) bool {
	for i := range p.Containers {
		for j := range p.Containers[i].Shares {
			if !p.Containers[i].Shares[j].Partition.IsZero() {
				return true
			}
		}
	}
	return false
}

// reserveDevices gives the pod devices that are free now. It is idempotent for the same node;
// for another node it moves the pod.
func (o *overlay) reserveDevices(n *nodes.Node, req *sharing.PodRequest, b sharing.Backends, p policy.Policy, w *queues.Allowance) error {
	if done, ok := o.placed[req.Owner]; ok && done.node == n.Name {
		return nil
	}
	o.releaseDevices(req.Owner)
	placement, refused, short := findPlacement(o.currentLedger(n), n, req, b, p, w)
	if short != nil {
		return fmt.Errorf("give pod %s devices of node %s: %s", req.Owner, n.Name, short)
	}
	if refused.Refused() {
		return fmt.Errorf("give pod %s devices of node %s: %s", req.Owner, n.Name, refused.String())
	}
	ledger := o.currentLedger(n).Fork()
	if err := ledger.Reserve(req.Owner, placement); err != nil {
		return fmt.Errorf("give pod %s devices of node %s: %w", req.Owner, n.Name, err)
	}
	o.recordPlacement(n.Name, ledger, req.Owner, placement)
	return nil
}

// promiseDevices gives the pod devices that will be free when others have left, if there are
// any, or returns why not. It overlaps with what those still hold, so it is recorded without a
// check.
func (o *overlay) promiseDevices(n *nodes.Node, info *api.NodeInfo, req *sharing.PodRequest, b sharing.Backends, p policy.Policy, w *queues.Allowance) (why string) {
	o.releaseDevices(req.Owner)
	placement, refused, short := findPlacement(o.futureLedger(n, info), n, req, b, p, w)
	switch {
	case short != nil:
		return short.String()
	case refused.Refused():
		return refused.String()
	}
	o.recordPromise(n, req.Owner, placement)
	return ""
}

// keepDevices gives a pod these devices, as they will be when others have left, or returns why not.
func (o *overlay) keepDevices(n *nodes.Node, info *api.NodeInfo, owner sharing.Owner, p *sharing.Placement) (why string) {
	o.releaseDevices(owner)
	placement := *p
	placement.Node = n.Name
	if err := o.futureLedger(n, info).Fork().Reserve(owner, placement); err != nil {
		return err.Error()
	}
	o.recordPromise(n, owner, placement)
	return ""
}

// recordPromise notes devices that others may still hold.
func (o *overlay) recordPromise(n *nodes.Node, owner sharing.Owner, p sharing.Placement) {
	ledger := o.currentLedger(n).Fork()
	ledger.Record(owner, p)
	o.recordPlacement(n.Name, ledger, owner, p)
}

// releaseDevices takes back what the session gave to a pod, if it gave any.
func (o *overlay) releaseDevices(owner sharing.Owner) {
	r, ok := o.placed[owner]
	if !ok {
		return
	}
	delete(o.placed, owner)
	ledger := o.ledgers[r.node].Fork()
	ledger.Release(owner)
	o.replaceLedger(r.node, ledger)
}

func (o *overlay) recordPlacement(node string, ledger *sharing.Ledger, owner sharing.Owner, p sharing.Placement) {
	o.placed[owner] = reservation{node: node, placement: p}
	o.replaceLedger(node, ledger)
}

// replaceLedger gives the node another ledger, and drops what was derived from the one it had.
func (o *overlay) replaceLedger(node string, ledger *sharing.Ledger) {
	o.ledgers[node] = ledger
	o.forgetFuture(node)
}
