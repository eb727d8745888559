// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/queues"
	"deviceshare/sharing"
	"deviceshare/sharing/place"
	"deviceshare/sharing/quota"
)

// prePredicate reads what the task asks for and refuses what no node can serve. It runs in
// the session goroutine before predicate runs for the task.
func (p *Plugin) prePredicate(t *api.TaskInfo) error {
	a := p.rememberAsk(t)
	p.limits.BeginTrial(p.cycle, t)
	p.noteArrival(t, a)
	if p.index == nil {
		p.index = newIndex(p.infos, p.nodes, p.store.rank)
	}
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

// predicate says whether the node has devices for the task. It runs in many
// goroutines and changes nothing.
func (p *Plugin) predicate(t *api.TaskInfo, info *api.NodeInfo) error {
	a := p.askOf(t)
	if !a.needsDevicesOf(info) {
		return nil
	}
	e, now := p.index.nodeEntry(info), p.judgesNow(t, info)
	if now && p.knowsToFit(a, e) {
		return nil
	}
	n := p.nodes[info.Name]
	if err := p.requireServing(a, n); err != nil {
		return refusalOn(t, info, false, err.Error())
	}
	w := p.allowanceOn(t, a, info)
	if short := w.Unavoidable(); short != nil && short.Leaving > 0 {
		return refusalOn(t, info, true, overQuota(short)) // whatever devices the node has
	}
	refused, short := p.checkDevices(a, n, t, info, w)
	switch {
	case short != nil:
		return refusalOn(t, info, w.MayEvictFor(short), overQuota(short))
	case !refused.Refused():
		if now {
			e.noteFit(a.kind)
		}
		return nil
	}
	p.store.metrics.countRefusals(&refused)
	// Evicting everybody does not help a pod that does not fit an empty node.
	curable := refused.Curable() && !n.Empty.Refuses(&a.request) && w.MayEvictOn(n.Inventory, &a.request)
	return refusalOn(t, info, curable, a.refusalText(&refused))
}

// allowanceOn returns what a task may take on a node, when Volcano uses the node for it: at once,
// or once others have left.
func (p *Plugin) allowanceOn(t *api.TaskInfo, a *ask, info *api.NodeInfo) *queues.Allowance {
	if judgedNow(t, info) {
		return p.limits.AllowanceNow(t, a.served())
	}
	return p.limits.Allowance(t, a.served())
}

// knowsToFit reports whether it was found out before, in this session, that the node as it is now
// has devices for such a task. Most questions are answered here. Where queues have limits, it is
// not: those are not the same for all tasks of a kind.
func (p *Plugin) knowsToFit(a *ask, e *entry) bool {
	return p.limits == nil && a.mistakes == nil && e.knownToFit(a.kind)
}

// devicesChanged is told when the session gives devices of a node away, or takes them back.
func (p *Plugin) devicesChanged(node string) { p.index.forgetFits(p.infos[node]) }

// overQuota returns the text of a refusal by a limit of a queue as it stands in the pod's event,
// where Volcano writes the number of nodes in front of it.
func overQuota(short *quota.Shortage) string { return "node(s) where " + short.String() }

// checkDevices asks the domain, unless the node has just answered the same request. A ledger that
// a predicate has seen is not changed any more, so the answer to the same request stays
// the same: the replicas of a deployment and the members of a gang ask a cluster one
// after the other, and the session after that again. Each of them changes one node.
// Refusing a second time allocates nothing.
//
// What the limits of a queue allow is not remembered: it depends on the queue.
func (p *Plugin) checkDevices(a *ask, n *nodes.Node, t *api.TaskInfo, info *api.NodeInfo, w *queues.Allowance) (sharing.Refusals, *quota.Shortage) {
	q := nodes.Question{Ledger: p.ledgerFor(n, t, info), Era: p.store.era, Kind: a.kind.Kind}
	if refused := n.Remembered(&q); refused != nil && (w == nil || refused.Refused()) {
		return *refused, nil
	}
	_, refused, short := findPlacement(q.Ledger, n, &a.request, p.backendsFor(a), p.policyFor(a), w)
	if a.kind.repeated && (w == nil || refused.Refused()) {
		n.Remember(q, refused)
	}
	return refused, short
}

// ledgerFor returns the node's ledger as Volcano will use it for the task: as it is, or as it
// will be when the pods that are leaving are gone.
func (p *Plugin) ledgerFor(n *nodes.Node, t *api.TaskInfo, info *api.NodeInfo) *sharing.Ledger {
	if p.judgesNow(t, info) {
		return p.overlay.currentLedger(n)
	}
	return p.overlay.futureLedger(n, p.infos[info.Name])
}

// judgesNow reports whether Volcano will use the node for the task as it is, and not as it will be
// when pods that are leaving are gone.
func (p *Plugin) judgesNow(t *api.TaskInfo, info *api.NodeInfo) bool {
	return !hasReleasing(info, p.settings.Names.Number) || judgedNow(t, info)
}

// requireServing returns an error if the node cannot serve the task whoever leaves it.
func (p *Plugin) requireServing(a *ask, n *nodes.Node) error {
	switch {
	case p.off != nil:
		return p.off
	case a.mistakes != nil:
		return a.mistakes
	case n == nil:
		return nodes.ErrNoDevices
	case n.Unusable != nil:
		return n.Unusable
	}
	if awaited, waits := p.awaited[n.Name]; waits {
		return fmt.Errorf("the scheduler has just started, or the node was registered anew, and it has yet to be told again of %s", awaited)
	}
	return nil
}

// nodeOrder scores a node for the task: the policy's score times the weight, plus the worth
// of the mode that the pod would get there, plus the node's place in the order of names.
// The last decides between equals: Volcano draws lots among equal scores, which would
// scatter pods that belong together.
//
// A pod without devices is scored only by a policy that weighs what later pods lose: the CPU beside
// free devices.
func (p *Plugin) nodeOrder(t *api.TaskInfo, info *api.NodeInfo) (float64, error) {
	a := p.askOf(t)
	n, rank := p.lookUp(info)
	if n == nil || p.off != nil || a != nil && n.Inventory == nil || a == nil && !p.valuesBare() {
		return 0, nil
	}
	return p.scoreNode(a, n, t, info) + rank*tieBreak, nil
}

// lookUp returns the node, nil if the plugin knows none of that name, and its place in the order of
// names.
func (p *Plugin) lookUp(info *api.NodeInfo) (n *nodes.Node, rank float64) {
	if e := p.index.nodeEntry(info); e != nil {
		return e.node, e.rank
	}
	return p.nodes[info.Name], p.store.rank[info.Name]
}

// scoreNode is what order says of a node apart from its name, from memory if the node has just been
// asked the same.
func (p *Plugin) scoreNode(a *ask, n *nodes.Node, t *api.TaskInfo, info *api.NodeInfo) float64 {
	k := p.kindOf(a, t)
	q := nodes.Question{Era: p.store.era, Kind: k.Kind, Free: freeFor(t, info)}
	if n.Inventory != nil {
		q.Ledger = p.ledgerFor(n, t, info)
	}
	if score, known := n.RememberedScore(&q); known {
		return score
	}
	score := p.computeScore(a, n, t, info, &q)
	if k.repeated {
		n.RememberScore(q, score)
	}
	return score
}

// computeScore asks the policy for its score.
func (p *Plugin) computeScore(a *ask, n *nodes.Node, t *api.TaskInfo, info *api.NodeInfo, q *nodes.Question) float64 {
	points, valued := 0.0, false
	if p.args.Weight > 0 {
		points, valued = p.lossPoints(a, t, q)
	}
	switch {
	case a == nil:
		return points * p.args.Weight
	case !valued && p.args.Weight > 0:
		points = float64(place.Score(p.overlay.currentLedger(n).Views(), &a.request, p.backendsFor(a), p.policyFor(a)))
	}
	return points*p.args.Weight + p.modeScore(a, n, t, info)
}

// tieBreak is small beside one point of any score and large beside the rounding
// of float64 for scores up to thousands on ten thousand nodes.
const tieBreak = 1e-3
