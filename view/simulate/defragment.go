// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"deviceshare/view"
	"deviceshare/view/capture"
)

// defragmenting is the search for moves that bring free devices together. Pods come that ask for
// whole devices of one node, first for as many as a node has, then for half as many, and so on.
// Each takes what is free, or has the fewest pods move.
type defragmenting struct {
	*planning
	// moves is how many pods may still move.
	moves int
	// tried counts the pods that came.
	tried int
}

// Defragment says which pods would have to move, at most so many, so that more devices are free
// beside each other. Every pod that has a controller may move which does not refuse to. The capture
// is not changed.
func Defragment(s *capture.State, q *Question, moves int) (*view.Plan, error) {
	if s.Scheduling == nil {
		return nil, errNoScheduling
	}
	question := Question{Backends: q.Backends, Config: q.Config, Policy: q.Policy, SchedulerName: q.SchedulerName, onRequest: true, onlyMoves: true}
	l, err := newPlanning(s, &question)
	if err != nil {
		return nil, err
	}
	d := &defragmenting{planning: l, moves: moves}
	for _, step := range []func() error{d.loadCapture, d.silenceOthers, d.permitMoves} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	if err := d.cluster.Add(&schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: highest}, Value: highestPriority}); err != nil {
		return nil, err
	}
	before := freeOnNodes(d.currentCluster())
	for _, size := range before.listSizes() {
		if d.moves == 0 {
			break
		}
		if err := d.clearNodes(size); err != nil {
			return nil, err
		}
	}
	if err := d.removeFillers(); err != nil {
		return nil, err
	}
	out := d.reportSteps()
	out.Free = compareFree(before, freeOnNodes(d.currentCluster()))
	out.Conclude()
	return out, nil
}

// clearNodes has pods come that ask for so many devices each, until one has to wait. Those for
// which nobody has to move come first, all at once.
func (d *defragmenting) clearNodes(size int) error {
	d.cluster.LimitMoves(0)
	free := 0
	for _, n := range freeOnNodes(d.currentCluster()).free {
		free += n / size
	}
	if _, err := d.addFillers(size, free); err != nil {
		return err
	}
	for d.moves > 0 {
		d.cluster.LimitMoves(d.moves)
		before := len(d.left)
		stays, err := d.addFillers(size, 1)
		if err != nil || !stays {
			return err
		}
		d.moves -= len(d.left) - before
	}
	return nil
}

// addFillers has so many pods come, and takes away those that have to wait. It reports whether all
// stay.
func (d *defragmenting) addFillers(size, pods int) (stay bool, err error) {
	var names []types.NamespacedName
	for range pods {
		p := d.nextFiller(size)
		names = append(names, nameOfPod(p))
		for _, o := range []any{groupFor(p), p} {
			if err := d.cluster.Add(o); err != nil {
				return false, err
			}
		}
	}
	if err := d.makeRoom(); err != nil {
		return false, err
	}
	stay = true
	for _, name := range names {
		if p, there := d.cluster.Pod(name); there && p.Spec.NodeName != "" {
			d.wishes = append(d.wishes, name)
			continue
		}
		stay = false
		if err := d.removeFiller(name); err != nil {
			return false, err
		}
	}
	return stay, nil
}

// nextFiller is one more pod that asks for so many devices.
func (d *defragmenting) nextFiller(size int) *corev1.Pod {
	d.tried++
	p := d.podWithDevices(size)
	p.Name = fmt.Sprintf("free-%d", d.tried)
	p.UID, p.CreationTimestamp = types.UID("simulated/"+p.Name), metav1.NewTime(d.admitter.born.Add(birthOffset(d.tried)))
	p.Status.Phase = corev1.PodPending
	p.Spec.PriorityClassName, p.Spec.Priority = highest, ptr.To[int32](highestPriority)
	return p
}

// highest is the priority class of the pods that come: nobody may give a higher one.
const (
	highest         = "simulated-highest"
	highestPriority = 1_000_000_000
)

func (d *defragmenting) removeFiller(name types.NamespacedName) error {
	p, _ := d.cluster.Pod(name)
	if err := d.cluster.RemovePod(name); err != nil {
		return err
	}
	d.cluster.RemoveGroup(types.NamespacedName{Namespace: name.Namespace, Name: groupOf(p)})
	return nil
}

// removeFillers takes the pods away that came.
func (d *defragmenting) removeFillers() error {
	for _, name := range d.wishes {
		if err := d.removeFiller(name); err != nil {
			return err
		}
	}
	d.wishes = nil
	return nil
}

// freeNodes are how many devices nodes have, and how many of those are free.
type freeNodes struct{ most, free []int }

// listSizes returns as many devices as any node has, and the halves of that down to one.
func (f freeNodes) listSizes() (sizes []int) {
	most := 0
	for _, n := range f.most {
		most = max(most, n)
	}
	for size := most; size > 0; size /= 2 {
		sizes = append(sizes, size)
	}
	return sizes
}

func freeOnNodes(c *view.Cluster) (f freeNodes) {
	for _, n := range c.Devices("") {
		if n.Unusable != "" {
			continue
		}
		free := 0
		for i := range n.Devices {
			if len(n.Devices[i].Sharers) == 0 && n.Devices[i].MemoryFree > 0 {
				free++
			}
		}
		f.most, f.free = append(f.most, len(n.Devices)), append(f.free, free)
	}
	return f
}

// compareFree counts the nodes that have so many devices free at least, for as many as any node has
// and its halves.
func compareFree(before, after freeNodes) (out []view.FreeDevices) {
	count := func(f freeNodes, least int) (n int) {
		for _, free := range f.free {
			if free >= least {
				n++
			}
		}
		return n
	}
	for _, size := range before.listSizes() {
		out = append(out, view.FreeDevices{Devices: size, Before: count(before, size), After: count(after, size)})
	}
	return out
}
