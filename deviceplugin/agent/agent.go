// SPDX-License-Identifier: Apache-2.0

// Package agent is the loop of the device plugin: it learns what happens on the node, keeps the
// node's state up to date, and takes the steps that follow from it.
//
//	Agent     the only writer of the state: takes events, gives immutable snapshots
//	Monitor   owns the driver: turns scans, probes and critical errors into events
//	Mover     looks at devices and takes the steps of node.Plan, one goroutine per device
//	Releaser  releases pods that are gone, as node.Plan says
//
// Package node makes the decisions. They touch neither a clock nor the driver; this package does,
// and has the locks and the goroutines.
package agent

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// listener is told what became different, in the order in which it happened. It
// must not send events itself, and must not block for long: nothing else of the node
// is decided meanwhile.
type listener interface {
	Tell(before, after node.State, notices []node.Notice)
}

// Agent is the only writer of the node's state. It is safe for concurrent use.
type Agent struct {
	state    atomic.Pointer[node.State]
	listener listener

	mu      sync.Mutex // held while an event is taken in
	readers []chan struct{}
	shown   bool // readers were woken at least once
}

// New returns an agent of a node about which nothing is known. l may be nil.
func New(c node.Config, l listener) *Agent {
	a := &Agent{listener: l}
	s := node.New(c)
	a.state.Store(&s)
	return a
}

// State returns the snapshot.
func (a *Agent) State() node.State { return *a.state.Load() }

// Offered lists the devices of this node that pods can be given.
func (a *Agent) Offered() []sharing.DeviceID {
	inventory := a.State().Inventory()
	out := make([]sharing.DeviceID, 0, len(inventory.Devices))
	for i := range inventory.Devices {
		out = append(out, inventory.Devices[i].ID)
	}
	return out
}

// Counted implements legacy.Devices: the devices that are offered, false before the first scan. The
// kubelet counts those that do not work as well
// (docs/adr/0050-what-is-held-stays-offered.md).
func (a *Agent) Counted() (sharing.Inventory, bool) {
	s := a.State()
	return s.Inventory(), s.Scanned()
}

// Send takes in an event. When it returns, State and the readers of Changes have it.
func (a *Agent) Send(e node.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := a.State()
	after := node.Reduce(before, e)
	a.state.Store(&after)
	if notices := node.Diff(before, after); len(notices) > 0 && a.listener != nil {
		a.listener.Tell(before, after, notices)
	}
	switch {
	case !after.Scanned():
		was, _ := before.IsUnread()
		if is, _ := after.IsUnread(); is != was {
			a.wakeReaders()
		}
	case !a.shown || hasVisibleChange(&before, &after):
		a.shown = true
		a.wakeReaders()
	}
}

// SetPart takes in whether a part of the surroundings works; err says why not.
func (a *Agent) SetPart(p node.Part, err error) {
	if err != nil {
		a.Send(node.Troubled{Part: p, Why: err.Error()})
		return
	}
	a.Send(node.Recovered{Part: p})
}

// Wake wakes the readers of Changes because something beside the state is different,
// such as the name of a resource.
func (a *Agent) Wake() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.State().Scanned() {
		a.wakeReaders()
	}
}

func (a *Agent) wakeReaders() {
	for _, c := range a.readers {
		trySignal(c)
	}
}

// hasVisibleChange reports whether anybody would do something else than before.
func hasVisibleChange(before, after *node.State) bool {
	resumable := func(p node.Permissions) bool { return p.Resume }
	type shown struct {
		published, working sharing.Inventory
		offered            node.Amounts
		slots              []string
	}
	published := func(s *node.State) shown { return shown{s.Published(), s.View(resumable), s.Offered(), s.Slots()} }
	return before.IsFinal() != after.IsFinal() || !reflect.DeepEqual(published(before), published(after))
}

// Changes returns a channel that holds a token after every change that a reader may care for, such
// as why there has been no scan so far, and one at once if there has been one. A slow reader sees
// one token for several changes. stop ends it.
func (a *Agent) Changes() (changes <-chan struct{}, stop func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := make(chan struct{}, 1)
	if a.State().Scanned() {
		c <- struct{}{}
	}
	a.readers = append(a.readers, c)
	return c, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.readers = slices.DeleteFunc(a.readers, func(x chan struct{}) bool { return x == c })
	}
}

// AwaitScan returns when the driver has listed its devices, and false if ctx ends
// before that.
func (a *Agent) AwaitScan(ctx context.Context) bool {
	klog.InfoS("waiting for the driver")
	changes, stop := a.Changes()
	defer stop()
	for !a.State().Scanned() {
		select {
		case <-ctx.Done():
			return false
		case <-changes:
		}
	}
	klog.InfoS("devices found", "count", len(a.State().Inventory().Devices))
	return true
}

// Minor returns the number of a device's node.
func (a *Agent) Minor(id sharing.DeviceID) (int, bool) {
	f, ok := a.State().Facts(id)
	return f.Minor, ok
}
