// SPDX-License-Identifier: Apache-2.0

// Package live follows the two ConfigMaps in a cluster. An edit takes effect without a
// restart. An edit with a problem is reported, and the last good value stays in force. It
// stays in force as well when the ConfigMap is deleted while the process runs.
//
// A process may keep the last good text in a Store. After a restart it goes on with
// that text if the ConfigMap is wrong or cannot be read. If the ConfigMap does not exist at
// the start, the defaults hold.
package live

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/kubernetes"

	"deviceshare/config"
)

// Value is the configuration in force.
type Value struct {
	Device config.Device
	Node   config.Node
	// DeviceFrom and NodeFrom say which object each half comes from: empty while
	// the defaults hold.
	DeviceFrom, NodeFrom Source
	// DeviceUnread and NodeUnread say that there is an object, or may be one that this
	// process may not read, and that nothing good is known of it: the defaults hold
	// for want of anything better, are not what the administrator wrote, and must not be
	// acted on.
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

// Kept is what was good last of one ConfigMap. Without a source there was none, and
// the defaults were meant.
type Kept struct {
	Source Source
	Text   string
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
	// Store may be nil: then nothing outlives the process. It is called as Changed and
	// Problem are.
	Store Store
}

// Store keeps what is good for the process that comes after this one.
type Store interface {
	// Keep is given what is good of the ConfigMap of a name each time it changes.
	Keep(name string, last Kept)
	// Recall returns what the process before this one kept last; false if nothing.
	Recall(name string) (Kept, bool)
}

// Watcher follows the ConfigMaps. Its methods are safe for concurrent use.
type Watcher struct {
	options Options
	current atomic.Pointer[Value]
	synced  chan struct{}

	mu    sync.Mutex // guards what follows and orders the callbacks
	ready bool
	seen  map[objectKey]object
	// told is the version whose problems were told last, and unreadable why an object
	// cannot be read now. Programs that have no model of a node follow ConfigMaps too:
	// that each is told once is remembered here.
	told       map[objectKey]Source
	unreadable map[objectKey]string
	forbidden  map[objectKey]bool // it can never be read: it is not waited for
	listed     map[objectKey]bool // it is known whether there is an object
	// known has the names of the ConfigMaps of which something good is in force, the
	// defaults because there is none included.
	known map[string]bool
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
		options: o, synced: make(chan struct{}), seen: map[objectKey]object{}, told: map[objectKey]Source{},
		unreadable: map[objectKey]string{}, forbidden: map[objectKey]bool{}, listed: map[objectKey]bool{}, known: map[string]bool{},
	}
	w.current.Store(&Value{Device: config.DefaultDevice()})
	return w
}

// Current returns the configuration in force. The caller must not change it.
func (w *Watcher) Current() Value { return *w.current.Load() }

// Wait returns when the ConfigMaps have been read once, whatever was in them, or
// with an error when the context ends before. It keeps waiting while the cluster
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

// applyConfigMaps reads what is there now and puts it in force where it is good. The lock
// is held.
func (w *Watcher) applyConfigMaps() {
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

// half is one of the two ConfigMaps on its way into the value.
type half struct {
	name, key string
	from      *Source
	unread    *bool
	// read puts a text in force that has no problems.
	read func(text string) []config.Problem
}

func (w *Watcher) applyDevice(v *Value) {
	w.applyHalf(half{w.options.DeviceName, config.DeviceKey, &v.DeviceFrom, &v.DeviceUnread, func(text string) []config.Problem {
		d, problems := config.LoadDevice([]byte(text))
		if len(problems) == 0 {
			v.Device = d
		}
		return problems
	}})
}

func (w *Watcher) applyNode(v *Value) {
	w.applyHalf(half{w.options.NodeName, config.NodeKey, &v.NodeFrom, &v.NodeUnread, func(text string) []config.Problem {
		n, problems := config.LoadNode([]byte(text))
		if len(problems) == 0 {
			v.Node = n
		}
		return problems
	}})
}

// applyHalf puts in force what is there, if it is good, or what was good last.
func (w *Watcher) applyHalf(h half) {
	text, from, found := w.findConfigMap(h.name, h.key, *h.from)
	switch found {
	case absent:
		*h.unread = false
		if !w.known[h.name] {
			w.storeLastGood(h.name, Kept{}) // the defaults are meant
		}
		return
	case usable:
		if from == *h.from {
			return
		}
		problems := h.read(text)
		if len(problems) == 0 {
			*h.from, *h.unread = from, false
			w.storeLastGood(h.name, Kept{Source: from, Text: text})
			return
		}
		w.reportOnce(from, problems)
	case unusable: // told already
	}
	if !w.known[h.name] {
		*h.unread = !w.restoreLastGood(h)
	}
}

// storeLastGood notes what is good, for a process that comes after this one.
func (w *Watcher) storeLastGood(name string, last Kept) {
	w.known[name] = true
	if w.options.Store != nil {
		w.options.Store.Keep(name, last)
	}
}

// restoreLastGood puts in force what a process before this one kept; false if it kept
// nothing, or what this version of the program does not take.
func (w *Watcher) restoreLastGood(h half) bool {
	if w.options.Store == nil {
		return false
	}
	last, ok := w.options.Store.Recall(h.name)
	if !ok {
		return false
	}
	if last.Source != (Source{}) {
		if len(h.read(last.Text)) > 0 {
			return false
		}
		// Not with its version: versions are those of one cluster.
		*h.from = Source{Namespace: last.Source.Namespace, Name: last.Source.Name}
	}
	w.known[h.name] = true
	return true
}

// finding is what became of looking for an object.
type finding int

const (
	absent finding = iota
	unusable
	usable
)

// findConfigMap finds the text of a ConfigMap in the first namespace that has the object.
// An object without the key is a problem, and so is one that was in force and is
// gone. A namespace in which nobody may look hides those after it: the object that
// counts may be there.
func (w *Watcher) findConfigMap(name, dataKey string, force Source) (string, Source, finding) {
	for _, namespace := range w.options.Namespaces {
		o, ok := w.seen[objectKey{namespace, name}]
		if !ok && !w.listed[objectKey{namespace, name}] {
			return "", Source{}, unusable
		}
		if !ok {
			continue
		}
		from := Source{Namespace: namespace, Name: name, Version: o.version}
		text, ok := o.data[dataKey]
		if !ok {
			w.reportOnce(from, []config.Problem{{Path: "data", Message: "has no key " + dataKey}})
			return "", from, unusable
		}
		return text, from, usable
	}
	if force != (Source{}) {
		force.Version = ""
		w.reportOnce(force, []config.Problem{{Message: "is deleted: what it said last stays in force"}})
	}
	return "", Source{}, absent
}

func (w *Watcher) reportOnce(from Source, problems []config.Problem) {
	k := objectKey{from.Namespace, from.Name}
	if w.told[k] == from {
		return
	}
	w.told[k] = from
	if w.options.Problem != nil {
		w.options.Problem(Report{Source: from, Problems: problems})
	}
}
