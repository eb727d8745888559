// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"iter"
	"maps"
	"slices"

	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/arguments"
	"deviceshare/plugins/deviceshare/mix"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/place"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/worth"
)

// preferences are what a session prefers: the policy of a pod, and the backends that place it.
type preferences struct {
	args *arguments.Arguments
	// plain are the backends without forecasts.
	plain sharing.Backends
	// forecasting are the backends of the policy fragmentation; learned is that policy as it is
	// now, learnedBare without the weights of modes.
	forecasting          sharing.Backends
	learned, learnedBare policy.Policy
}

// newPreferences returns those of a session, by what has been learned.
func newPreferences(args *arguments.Arguments, plain sharing.Backends, m *mix.Mix) preferences {
	bare := policy.Fragmentation(m.Model())
	return preferences{
		args: args, plain: plain, forecasting: m.Backends(),
		learned: policy.WithModes(bare, args.ModeWeights), learnedBare: bare,
	}
}

// policyFor is the pod's, or else the scheduler's, with what modes are worth to a pod that names
// none.
func (v *preferences) policyFor(a *ask) policy.Policy {
	chosen := a.policy
	if chosen.Name() == "" {
		chosen = v.args.Policy
	}
	bare := len(v.args.ModeWeights) == 0 || len(a.request.Modes) > 0
	switch {
	case chosen.Learns() && bare:
		return v.learnedBare
	case chosen.Learns():
		return v.learned
	case bare:
		return chosen
	}
	return v.args.Weighted[chosen.Name()]
}

// backendsFor returns those that place a pod: they forecast by what was learned if the pod's policy
// weighs that.
func (v *preferences) backendsFor(a *ask) sharing.Backends {
	if v.policyFor(a).Learns() {
		return v.forecasting
	}
	return v.plain
}

// valuesBare reports whether pods without devices are scored.
func (v *preferences) valuesBare() bool { return v.args.Policy.Learns() && v.args.Weight > 0 }

// policyScore returns the score of a node by the pod's policy; by the scheduler's for a pod without
// devices, which asks nothing.
func (v *preferences) policyScore(a *ask, t *api.TaskInfo, q *nodes.Question) float64 {
	h := worth.Host{Free: q.Free}
	if q.Ledger != nil {
		h.Views = q.Ledger.Views()
	}
	var score float64
	if a == nil {
		score, _ = place.Score(h, nil, needsOf(t), v.forecasting, v.learnedBare)
	} else {
		score, _ = place.Score(h, &a.request, needsOf(t), v.backendsFor(a), v.policyFor(a))
	}
	return score
}

// noteArrival notes a pod that Volcano is about to place, and learns again when that is due. The
// session goroutine calls it before workers ask for the task.
func (p *Plugin) noteArrival(t *api.TaskInfo, a *ask) {
	m := p.store.mix
	if owner := sharing.Owner(t.Pod.UID); !m.Knows(owner) {
		var asked *sharing.PodRequest
		if a != nil {
			asked = &a.request
		}
		m.Note(owner, worth.KindOf(asked, needsOf(t)))
	}
	if m.IsDue() {
		m.Renew(p.cluster())
		p.useLearned()
	}
}

// useLearned has the session go by what was learned, which has changed.
func (p *Plugin) useLearned() {
	p.store.era++
	p.preferences = newPreferences(&p.args, p.store.backends, p.store.mix)
}

// cluster is what is learned from beside pods.
func (p *Plugin) cluster() mix.Cluster {
	return mix.Cluster{Nodes: p.nodes, Hosts: func(yield func(worth.Host) bool) {
		for _, name := range slices.Sorted(maps.Keys(p.nodes)) {
			n, info := p.nodes[name], p.infos[name]
			if n.Inventory == nil || info == nil {
				continue
			}
			if !yield(worth.Host{Views: p.overlay.currentLedger(n).Views(), Free: freeOn(info)}) {
				return
			}
		}
	}}
}

// kindsOf yields the pods of a session with what they ask for.
func kindsOf(ssn *framework.Session, s *nodes.Settings) iter.Seq2[sharing.Owner, func() (worth.Kind, bool)] {
	return func(yield func(sharing.Owner, func() (worth.Kind, bool)) bool) {
		for t := range tasksOf(ssn) {
			read := func() (worth.Kind, bool) {
				if !corepod.Asks(t.Pod, s.Names) {
					return worth.KindOf(nil, needsOf(t)), true
				}
				asked, mistakes := s.ReadRequest(t.Pod)
				return worth.KindOf(&asked, needsOf(t)), len(mistakes) == 0
			}
			if t.Pod != nil && !yield(sharing.Owner(t.Pod.UID), read) {
				return
			}
		}
	}
}
