// SPDX-License-Identifier: Apache-2.0

// Package live follows the two ConfigMaps in a cluster. An edit takes effect
// without a restart; an edit with a problem is reported and the last good value
// stays in force, and so it does when a ConfigMap is deleted.
package live

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"deviceshare/config"
)

// Value is the configuration in force.
type Value struct {
	Device config.Device
	Node   config.Node
	// DeviceFrom and NodeFrom say which object each half comes from: empty while
	// the defaults hold.
	DeviceFrom, NodeFrom Source
	// DeviceUnread and NodeUnread say that there is an object, but no version of
	// it without problems was ever seen, or that nobody may look whether there is
	// one: the defaults stand there for want of anything better, are not what the
	// administrator wrote, and must not be acted on.
	DeviceUnread, NodeUnread bool
}

// Source is one version of one ConfigMap.
type Source struct {
	Namespace, Name, Version string
}

// Report is what is wrong with one version of a ConfigMap, or with reading it.
type Report struct {
	Source   Source
	Problems []config.Problem
}

// Options say what to follow and whom to tell.
type Options struct {
	Client kubernetes.Interface
	// Namespaces are looked at in order: the first that has the object counts.
	// Nil means kube-system, then volcano-system.
	Namespaces []string
	// DeviceName and NodeName are the names of the ConfigMaps; empty means the
	// usual ones.
	DeviceName, NodeName string
	// Changed is told when the value in force has changed, Problem when something
	// is wrong. Each may be nil. They are called one at a time and in order, and
	// must not call back into the watcher except for Current. A problem of one
	// version is told once.
	Changed func(Value)
	Problem func(Report)
}

// Watcher follows the ConfigMaps. Its methods are safe for concurrent use.
type Watcher struct {
	options Options
	current atomic.Pointer[Value]
	synced  chan struct{}

	mu         sync.Mutex // guards what follows and orders the callbacks
	ready      bool
	seen       map[key]object
	told       map[key]Source // the version whose problems were told last
	unreadable map[key]string // why an object cannot be read now
	forbidden  map[key]bool   // it was never listed, for lack of permission
	listed     map[key]cache.InformerSynced
}

// New returns a watcher that holds the defaults until it runs.
func New(o Options) *Watcher {
	if o.Namespaces == nil {
		o.Namespaces = []string{"kube-system", "volcano-system"}
	}
	if o.DeviceName == "" {
		o.DeviceName = config.DeviceName
	}
	if o.NodeName == "" {
		o.NodeName = config.NodeName
	}
	w := &Watcher{
		options: o, synced: make(chan struct{}), seen: map[key]object{}, told: map[key]Source{},
		unreadable: map[key]string{}, forbidden: map[key]bool{}, listed: map[key]cache.InformerSynced{},
	}
	w.current.Store(&Value{Device: config.DefaultDevice()})
	return w
}

// Current returns the configuration in force. The caller must not change it.
func (w *Watcher) Current() Value { return *w.current.Load() }

// Wait returns when the ConfigMaps have been read once, whatever was in them and
// also if that is forbidden (Value says so), or with an error when the context ends
// before. It keeps waiting while the cluster
// cannot be reached: starting with defaults would be starting with other settings
// than the administrator's.
func (w *Watcher) Wait(ctx context.Context) error {
	select {
	case <-w.synced:
		return nil
	case <-ctx.Done():
		return errors.Join(errors.New("wait for the ConfigMaps to be read"), context.Cause(ctx))
	}
}

// apply reads what is there now and puts it in force where it is good. The lock
// is held.
func (w *Watcher) apply() {
	old := w.current.Load()
	next := *old
	w.applyDevice(&next)
	w.applyNode(&next)
	unread := next.DeviceUnread != old.DeviceUnread || next.NodeUnread != old.NodeUnread
	if next.DeviceFrom == old.DeviceFrom && next.NodeFrom == old.NodeFrom && !unread {
		return
	}
	changed := unread || next.Device.Hash() != old.Device.Hash() || next.Node.Hash() != old.Node.Hash()
	w.current.Store(&next)
	if changed && w.options.Changed != nil {
		w.options.Changed(next)
	}
}

func (w *Watcher) applyDevice(v *Value) {
	text, from, ok := w.pick(w.options.DeviceName, config.DeviceKey, v.DeviceFrom)
	if !ok {
		v.DeviceUnread = from != (Source{}) && v.DeviceFrom == (Source{})
		return
	}
	if from == v.DeviceFrom {
		return
	}
	d, problems := config.LoadDevice([]byte(text))
	if len(problems) > 0 {
		w.tell(from, problems)
		v.DeviceUnread = v.DeviceFrom == (Source{})
		return
	}
	v.Device, v.DeviceFrom, v.DeviceUnread = d, from, false
}

func (w *Watcher) applyNode(v *Value) {
	text, from, ok := w.pick(w.options.NodeName, config.NodeKey, v.NodeFrom)
	if !ok {
		v.NodeUnread = from != (Source{}) && v.NodeFrom == (Source{})
		return
	}
	if from == v.NodeFrom {
		return
	}
	n, problems := config.LoadNode([]byte(text))
	if len(problems) > 0 {
		w.tell(from, problems)
		v.NodeUnread = v.NodeFrom == (Source{})
		return
	}
	v.Node, v.NodeFrom, v.NodeUnread = n, from, false
}

// pick finds the text of a ConfigMap in the first namespace that has the object.
// An object without the key is a problem, and so is one that was in force and is
// gone; the source is empty when there is no object. A namespace in which nobody may
// look hides those after it: the object that counts may be there.
func (w *Watcher) pick(name, dataKey string, force Source) (string, Source, bool) {
	for _, namespace := range w.options.Namespaces {
		o, ok := w.seen[key{namespace, name}]
		if !ok && w.forbidden[key{namespace, name}] {
			return "", Source{Namespace: namespace, Name: name}, false
		}
		if !ok {
			continue
		}
		from := Source{Namespace: namespace, Name: name, Version: o.version}
		text, ok := o.data[dataKey]
		if !ok {
			w.tell(from, []config.Problem{{Path: "data", Message: "has no key " + dataKey}})
			return "", from, false
		}
		return text, from, true
	}
	if force != (Source{}) {
		force.Version = ""
		w.tell(force, []config.Problem{{Message: "is deleted: what it said last stays in force"}})
	}
	return "", Source{}, false
}

// tell reports the problems of one version once.
func (w *Watcher) tell(from Source, problems []config.Problem) {
	k := key{from.Namespace, from.Name}
	if w.told[k] == from {
		return
	}
	w.told[k] = from
	if w.options.Problem != nil {
		w.options.Problem(Report{Source: from, Problems: problems})
	}
}
