// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/leader"
	"deviceshare/sharing"
)

// ConfigMap is the name of that of node types.
const ConfigMap = "volcano-vgpu-node-types"

const (
	// longSeconds is how long pods wait before nodes are asked for: many are placed meanwhile, when
	// another one ends.
	longSeconds = 60
	// busyEvery and idleEvery are the seconds between two looks: while pods wait, while none do.
	busyEvery, idleEvery = 5, 60
	// judgeSeconds is how long evictions for a pod wait until it is known whether a new node would
	// serve it.
	judgeSeconds = 3 * busyEvery
	// callTimeout bounds the calls of one look.
	callTimeout = time.Minute
)

// Reporter tells people about an object. It must not wait for the API server.
type Reporter interface {
	Report(object *corev1.ObjectReference, reason, message string)
}

// Options say whether and how nodes are asked for.
type Options struct {
	// Namespace is that of the utility pods and of the ConfigMap. "" asks for no nodes.
	Namespace string
	// TypeLabel is the label of nodes whose value is their type.
	TypeLabel string
	// Patience is how long evictions for a pod wait for a node.
	Patience time.Duration
}

// Demand asks for nodes. IsDue and See belong to the session goroutine, the other methods are safe
// for concurrent use.
type Demand struct {
	options Options
	lead    leader.Leadership
	report  Reporter
	backend sharing.Backends
	start   sync.Once
	// looks has the newest look that the worker has not taken yet.
	looks chan look
	// last is when was looked last, in seconds; nodes is how many there were in the last session.
	last  int64
	nodes int
	// first is when a pod was first found waiting. mu guards it.
	mu    sync.Mutex
	first map[types.UID]int64
	// answer is what was decided last, nil if nothing was.
	answer atomic.Pointer[published]
	// told are the problems that people were told. The worker owns it.
	told map[string]bool
}

// published is an answer with the question's pods.
type published struct {
	Answer
	judged map[types.UID]bool
	types  int
}

// look is a question without the types.
type look struct {
	client kubernetes.Interface
	Question
}

// Look is what a session sees.
type Look struct {
	Waiting  []Pod
	Seen     []Seen
	Settings *nodes.Settings
}

// New returns a Demand that writes while this process leads.
func New(o Options, b sharing.Backends, lead leader.Leadership, report Reporter) *Demand {
	return &Demand{options: o, lead: lead, report: report, backend: b, looks: make(chan look, 1), first: map[types.UID]int64{}, told: map[string]bool{}}
}

// IsOn reports whether nodes are asked for at all.
func (d *Demand) IsOn() bool { return d.options.Namespace != "" }

// IsDue reports whether a session is to be looked at, which has so many nodes. waits says that pods
// wait for more. A node that has come is looked at at once: pods take it within seconds, and a
// utility pod that is still there then would bring another one.
func (d *Demand) IsDue(now int64, waits bool, nodes int) bool {
	if !d.IsOn() {
		return false
	}
	a := d.answer.Load()
	isBusy := waits || a == nil || len(a.judged) > 0
	changed := nodes != d.nodes
	d.nodes = nodes
	return d.last == 0 || now-d.last >= idleEvery || isBusy && (changed || now-d.last >= busyEvery)
}

// See takes in a session that IsDue. What is done about it is done by a goroutine that begins with
// the first one.
func (d *Demand) See(client kubernetes.Interface, now int64, l *Look) {
	d.start.Do(func() { go d.serveLooks() })
	d.last = now
	q := Question{Seen: l.Seen, TypeLabel: d.options.TypeLabel, Settings: l.Settings, Backends: d.backend}
	waiting := map[types.UID]bool{}
	for i := range l.Waiting {
		uid := l.Waiting[i].Object.UID
		waiting[uid] = true
		q.Waiting = append(q.Waiting, Waiting{Pod: l.Waiting[i], IsLong: now-d.firstWaited(uid, now) >= longSeconds})
	}
	d.mu.Lock()
	maps.DeleteFunc(d.first, func(uid types.UID, first int64) bool {
		return !waiting[uid] && now-first > longSeconds+int64(d.options.Patience/time.Second)
	})
	d.mu.Unlock()
	select {
	case <-d.looks: // an older one that was not taken
	default:
	}
	d.looks <- look{client, q}
}

// firstWaited is when a pod was first found waiting.
func (d *Demand) firstWaited(pod types.UID, now int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	first, known := d.first[pod]
	if !known {
		first = now
		d.first[pod] = first
	}
	return first
}

// Awaits reports whether a pod waits for a new node, so that nobody is evicted for it: one would
// serve it, or that is not known yet, and it has not waited for too long.
func (d *Demand) Awaits(pod types.UID, now int64) bool {
	a := d.answer.Load()
	if !d.IsOn() || d.options.Patience <= 0 || a == nil || a.types == 0 {
		return false
	}
	waits := now - d.firstWaited(pod, now)
	if !a.judged[pod] {
		return waits < judgeSeconds
	}
	return a.Served[pod] != "" && waits < int64(d.options.Patience/time.Second)
}

// Text says for which type of node a pod waits that is asked for, "" for none.
func (d *Demand) Text(pod types.UID, now int64) string {
	a := d.answer.Load()
	if a == nil || a.Needed[a.Served[pod]] == 0 || now-d.firstWaited(pod, now) < longSeconds {
		return ""
	}
	return fmt.Sprintf("The cluster's autoscaler is asked for nodes of type %s", a.Served[pod])
}

// Needed is how many new nodes waiting pods need, by type.
func (d *Demand) Needed() map[string]int {
	if a := d.answer.Load(); a != nil {
		return a.Needed
	}
	return nil
}

// Close ends the goroutine. See must not be called any more.
func (d *Demand) Close() { close(d.looks) }

// serveLooks does what is to be done about each look.
func (d *Demand) serveLooks() {
	for l := range d.looks {
		if err := d.answerLook(&l); err != nil {
			klog.ErrorS(err, "Cannot ask for nodes, will try again")
		}
	}
}

// answerLook learns, decides, and makes and deletes utility pods.
func (d *Demand) answerLook(l *look) error {
	until, done, err := d.lead.Begin()
	if err != nil {
		return fmt.Errorf("ask for nodes: %w", err)
	}
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	ctx, cancel = context.WithDeadline(ctx, until)
	defer cancel()
	w := writer{client: l.client, namespace: d.options.Namespace}
	known, err := w.learnTypes(ctx, &l.Question)
	if err != nil {
		return err
	}
	d.reportProblems(w.configMapReference(), known.Problems)
	l.Types = known.Types
	a := published{Answer: Decide(&l.Question), judged: map[types.UID]bool{}, types: len(known.Types)}
	for i := range l.Waiting {
		a.judged[l.Waiting[i].Object.UID] = true
	}
	d.answer.Store(&a)
	return w.applyWishes(ctx, a.Wishes)
}
