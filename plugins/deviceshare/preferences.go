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
	if chosen == nil {
		chosen = v.args.Policy
	}
	_, learns := chosen.(policy.Valuer)
	bare := len(v.args.ModeWeights) == 0 || len(a.request.Modes) > 0
	switch {
	case learns && bare:
		return v.learnedBare
	case learns:
		return v.learned
	case bare:
		return chosen
	}
	return v.args.Weighted[chosen.Name()]
}

// backendsFor returns those that place a pod: they forecast by what was learned if the pod's policy
// weighs that.
func (v *preferences) backendsFor(a *ask) sharing.Backends {
	if _, learns := v.policyFor(a).(policy.Valuer); learns {
		return v.forecasting
	}
	return v.plain
}

// valuesBare reports whether pods without devices are scored.
func (v *preferences) valuesBare() bool {
	_, values := v.args.Policy.(policy.Valuer)
	return values && v.args.Weight > 0
}

// lossPoints returns the score of a node by what is lost there, in points; false if the pod's
// policy does not score so.
func (v *preferences) lossPoints(a *ask, t *api.TaskInfo, q *nodes.Question) (float64, bool) {
	h := worth.Host{Free: q.Free}
	if q.Ledger != nil {
		h.Views = q.Ledger.Views()
	}
	if a == nil {
		return place.Points(h, nil, needsOf(t), v.forecasting, v.learnedBare)
	}
	chosen := v.policyFor(a)
	if _, ok := chosen.(policy.Valuer); !ok {
		return 0, false
	}
	if points, fits := place.Points(h, &a.request, needsOf(t), v.backendsFor(a), chosen); fits {
		return points, true
	}
	return -2 * policy.MaxPoints, true
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
	p.index.forgetAll()
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
