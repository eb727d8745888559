// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"sync"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/arguments"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/queues"
	"deviceshare/plugins/deviceshare/waiting"
	"deviceshare/sharing"
	"deviceshare/sharing/quota"
)

// judge answers for the nodes of a session: whether the devices of one fit a task, and how good a
// place it is. Workers ask it, many at once; only the session goroutine writes its fields, and
// never while workers ask.
type judge struct {
	store    *Store
	args     arguments.Arguments
	settings *nodes.Settings
	nodes    map[string]*nodes.Node
	infos    map[string]*api.NodeInfo
	overlay  *overlay
	preferences
	requests
	// awaited says which pods have yet to appear on a node, for nodes that are not used
	// until then.
	awaited map[string]string
	// limits are those of queues, nil if no queue has a limit of devices.
	limits *queues.Limits
	// limitsAside are the limits while devices alone are judged.
	limitsAside *queues.Limits
	// judgesFuture says that nodes are judged as they will be when pods that are leaving are gone,
	// whatever their sums say.
	judgesFuture bool
	// off is why no pod with devices is placed in this session, nil if they are.
	off error
	// hopeless are texts of nodes that would refuse the pod empty too, by their texts without that.
	hopeless *sync.Map
}

// prePredicate reads what the task asks for and refuses what no node can serve. It runs in
// the session goroutine before predicate runs for the task.
func (p *Plugin) prePredicate(t *api.TaskInfo) error {
	a := p.rememberAsk(t)
	p.limits.BeginTrial(p.cycle, t)
	p.noteArrival(t, a)
	p.turn = turn{task: t, ask: a, kind: p.kindOf(a, t)}
	switch {
	case a == nil || a.uncertain:
		return nil
	case p.off != nil:
		return refusalEverywhere(p.off)
	case a.mistakes != nil:
		return refusalEverywhere(a.mistakes)
	}
	return nil
}

// overQuota returns the text of a refusal by a limit of a queue as it stands in the pod's event,
// where Volcano writes the number of nodes in front of it.
func overQuota(short *quota.Shortage) string { return "node(s) where " + short.String() }

// predicate says whether the node has devices for the task. It runs in many
// goroutines and changes nothing.
func (j *judge) predicate(t *api.TaskInfo, info *api.NodeInfo) error {
	a := j.askOf(t)
	if !a.needsDevicesOf(info) {
		return nil
	}
	n := j.nodes[info.Name]
	if err := j.requireServing(a, n); err != nil {
		return refusalOn(t, info, false, err.Error())
	}
	if text, isSettled := j.claimAnswer(a, info.Name); isSettled {
		if text == "" {
			return nil
		}
		return refusalOn(t, info, false, text)
	}
	w := j.allowanceOn(t, a, info)
	if short := w.Unavoidable(); short != nil && short.Leaving > 0 {
		return refusalOn(t, info, true, overQuota(short)) // whatever devices the node has
	}
	refused, short := j.checkDevices(a, n, t, info, w)
	switch {
	case short != nil:
		return refusalOn(t, info, w.MayEvictFor(short), overQuota(short))
	case !refused.Refused():
		return nil
	}
	j.store.metrics.CountRefusals(&refused)
	text, curable := j.describeRefusal(a, n, &refused)
	return refusalOn(t, info, curable && w.MayEvictOn(n.Inventory, &a.request), text)
}

// describeRefusal returns what the devices of a node say to a pod, and whether pods that leave may
// change that: none does for a pod that does not fit the empty node.
func (j *judge) describeRefusal(a *ask, n *nodes.Node, r *sharing.Refusals) (text string, curable bool) {
	text = a.refusalText(r)
	if !r.Curable() {
		return text, false
	}
	if !n.Empty.Refuses(&a.request) {
		return text, true
	}
	hopeless, known := j.hopeless.Load(text)
	if !known {
		hopeless, _ = j.hopeless.LoadOrStore(text, text+waiting.EvenEmpty)
	}
	return hopeless.(string), false
}

// allowanceOn returns what a task may take on a node, when Volcano uses the node for it: at once,
// or once others have left.
func (j *judge) allowanceOn(t *api.TaskInfo, a *ask, info *api.NodeInfo) *queues.Allowance {
	if !j.judgesFuture && judgedNow(t, info) {
		return j.limits.AllowanceNow(t, a.served())
	}
	return j.limits.Allowance(t, a.served())
}

// checkDevices asks the domain, unless the node has just answered the same request. A ledger that
// a predicate has seen is not changed any more, so the answer to the same request stays
// the same: the replicas of a deployment and the members of a gang ask a cluster one
// after the other, and the session after that again. Each of them changes one node.
// Refusing a second time allocates nothing.
//
// What the limits of a queue allow is not remembered: it depends on the queue.
func (j *judge) checkDevices(a *ask, n *nodes.Node, t *api.TaskInfo, info *api.NodeInfo, w *queues.Allowance) (sharing.Refusals, *quota.Shortage) {
	ledger := j.ledgerFor(n, t, info)
	k := kindOn(ledger, a, a.kind)
	q := nodes.Question{Ledger: ledger, Era: j.store.era, Kind: k.Kind}
	if refused := n.Remembered(&q); refused != nil && (w == nil || refused.Refused()) {
		return *refused, nil
	}
	_, refused, short := findPlacement(q.Ledger, n, j.requestOn(a, n), j.backendsFor(a), j.policyFor(a), w)
	if k.repeated && (w == nil || refused.Refused()) {
		n.Remember(q, refused)
	}
	return refused, short
}

// ledgerFor returns the node's ledger as Volcano will use it for the task: as it is, or as it
// will be when the pods that are leaving are gone.
func (j *judge) ledgerFor(n *nodes.Node, t *api.TaskInfo, info *api.NodeInfo) *sharing.Ledger {
	if j.judgesNow(t, info) {
		return j.overlay.currentLedger(n)
	}
	return j.overlay.futureLedger(n, j.infos[info.Name])
}

// judgesNow reports whether Volcano will use the node for the task as it is, and not as it will be
// when pods that are leaving are gone.
func (j *judge) judgesNow(t *api.TaskInfo, info *api.NodeInfo) bool {
	return !j.judgesFuture && (!hasReleasing(info, j.settings.Names.Number) || judgedNow(t, info))
}

// requireServing returns an error if the node cannot serve the task whoever leaves it.
func (j *judge) requireServing(a *ask, n *nodes.Node) error {
	switch {
	case j.off != nil:
		return j.off
	case a.mistakes != nil:
		return a.mistakes
	case n == nil:
		return nodes.ErrNoDevices
	case n.Unusable != nil:
		return n.Unusable
	}
	if awaited, waits := j.awaited[n.Name]; waits {
		return fmt.Errorf("the scheduler has just started, or the node was registered anew, and it has yet to be told again of %s", awaited)
	}
	return nil
}
