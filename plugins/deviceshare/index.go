// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"sync/atomic"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/nodes"
)

// index has what is asked of a node for every task, side by side in memory and without the node's
// name: looking names up, and waiting for the memory of one node after the other, took longer than
// the answers. The session goroutine makes it before workers ask; they note fits.
type index struct {
	// places are positions in entries, by the nodes of the session. Copies of a node, which dry
	// runs make, have none.
	places  map[*api.NodeInfo]int
	entries []entry
}

// entry is one node.
type entry struct {
	// node is nil if the plugin knows no node of that name.
	node *nodes.Node
	// rank is the node's place in the order of names.
	rank float64
	// fits has a bit for each kind of tasks that is known to fit the node's devices as they are.
	fits atomic.Uint64
}

// fitKinds is how many kinds of tasks have a bit.
const fitKinds = 64

// newIndex returns an index of all nodes of a session.
func newIndex(infos map[string]*api.NodeInfo, known map[string]*nodes.Node, rank map[string]float64) *index {
	x := &index{places: make(map[*api.NodeInfo]int, len(infos)), entries: make([]entry, len(infos))}
	for name, info := range infos {
		place := len(x.places)
		x.places[info] = place
		x.entries[place].node, x.entries[place].rank = known[name], rank[name]
	}
	return x
}

// nodeEntry returns that of the node, nil if there is none. Safe for concurrent use.
func (x *index) nodeEntry(info *api.NodeInfo) *entry {
	if x == nil {
		return nil
	}
	if place, ok := x.places[info]; ok {
		return &x.entries[place]
	}
	return nil
}

// forgetFits drops what is known to fit the node. Call it when its devices change.
func (x *index) forgetFits(info *api.NodeInfo) {
	if e := x.nodeEntry(info); e != nil {
		e.fits.Store(0)
	}
}

// forgetAll drops what is known to fit any node.
func (x *index) forgetAll() {
	for i := 0; x != nil && i < len(x.entries); i++ {
		x.entries[i].fits.Store(0)
	}
}

// knownToFit reports whether that kind of tasks is. Safe for concurrent use.
func (e *entry) knownToFit(k sessionKind) bool {
	return e != nil && k.hasFitBit() && e.fits.Load()&(1<<k.number) != 0
}

// noteFit keeps that the kind fits. Safe for concurrent use.
func (e *entry) noteFit(k sessionKind) {
	if e != nil && k.hasFitBit() {
		e.fits.Or(1 << k.number)
	}
}

// hasFitBit reports whether the kind has a bit.
func (k sessionKind) hasFitBit() bool { return k.Kind != nil && k.repeated && k.number < fitKinds }
