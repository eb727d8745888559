// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"iter"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/sharing"
	"deviceshare/sharing/place"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/policy"
	"deviceshare/sharing/request"
	"deviceshare/sharing/worth"
)

// placementsPerRenewal is after how many placements the weights of what has been learned are
// renewed.
const placementsPerRenewal = 200

// learner is what the policy fragmentation has learned from the pods that arrived. It outlives
// sessions, and nothing is stored of it: at the start it is learned again from the pods that
// are there. The session goroutine writes it, never while workers run; workers read policies.
type learner struct {
	arrivals worth.Arrivals
	model    *worth.Model
	// backends forecast what later pods lose by what was learned; nil if nothing was.
	backends sharing.Backends
	placed   int // since the weights were renewed
	begun    bool
}

// noteArrival notes a pod that Volcano is about to place, and reads the mix again when it has
// changed. The session goroutine calls it before workers ask for the task.
func (p *Plugin) noteArrival(t *api.TaskInfo, a *ask) {
	l := &p.store.learner
	if owner := sharing.Owner(t.Pod.UID); !l.arrivals.Knows(owner) {
		var asked *sharing.PodRequest
		if a != nil {
			asked = &a.request
		}
		l.arrivals.Note(owner, worth.KindOf(asked, needsOf(t)))
	}
	switch {
	case l.arrivals.Due():
		p.readMix()
	case l.placed >= placementsPerRenewal:
		if knowsAll := p.renewWeights(); !knowsAll {
			p.readMix()
		}
	}
}

// readMix learns from the pods that arrived.
func (p *Plugin) readMix() {
	l, mix := &p.store.learner, p.store.learner.arrivals.Mix()
	p.store.mix.Store(&mix)
	numbers, samples := p.countClasses()
	l.model = worth.NewModel(mix, numbers)
	l.backends = worth.Forecasting(p.store.backends, mix, samples)
	p.renewWeights()
}

// renewWeights renews the weights. It reports whether the classes of all devices are known.
func (p *Plugin) renewWeights() bool {
	l := &p.store.learner
	weighed, knowsAll := l.model.Weigh(p.deviceHosts())
	l.model, l.placed = weighed, 0
	p.store.era++
	p.useLearned()
	return knowsAll
}

// useLearned has the session's policies use what has been learned.
func (p *Plugin) useLearned() {
	p.index.forgetAll()
	p.learned = policy.WithModes(policy.Fragmentation(p.store.learner.model), p.args.ModeWeights)
	p.learnedBare = policy.Fragmentation(p.store.learner.model)
	if p.forecasting = p.store.learner.backends; p.forecasting == nil {
		p.forecasting = p.store.backends
	}
}

// backendsFor returns those that place a pod: they forecast by what was learned if the pod's policy
// weighs that.
func (p *Plugin) backendsFor(a *ask) sharing.Backends {
	if _, learns := p.policyFor(a).(policy.Valuer); learns {
		return p.forecasting
	}
	return p.store.backends
}

// countClasses counts the devices of the cluster by their classes, and returns one of each: the
// first in the order of nodes, since what is learned must not depend on the order of a map.
func (p *Plugin) countClasses() (numbers map[worth.Class]int, samples map[worth.Class]*sharing.Device) {
	numbers, samples = map[worth.Class]int{}, map[worth.Class]*sharing.Device{}
	for _, name := range slices.Sorted(maps.Keys(p.nodes)) {
		inventory := p.nodes[name].Inventory
		for i := 0; inventory != nil && i < len(inventory.Devices); i++ {
			d := &inventory.Devices[i]
			class := worth.ClassOf(d)
			if numbers[class]++; samples[class] == nil {
				samples[class] = d
			}
		}
	}
	return numbers, samples
}

// deviceHosts yields the nodes with devices as they are in the session, always in the same order:
// sums of floats depend on it.
func (p *Plugin) deviceHosts() iter.Seq[worth.Host] {
	return func(yield func(worth.Host) bool) {
		for _, name := range slices.Sorted(maps.Keys(p.nodes)) {
			n, info := p.nodes[name], p.infos[name]
			if n.Inventory == nil || info == nil {
				continue
			}
			if !yield(worth.Host{Views: p.overlay.currentLedger(n).Views(), Free: freeOn(info)}) {
				return
			}
		}
	}
}

// learnAtStart learns from the pods of the first snapshot, so that a restart forgets little.
func (l *learner) learnAtStart(snapshot iter.Seq[*api.TaskInfo], s *nodes.Settings) {
	if l.begun {
		return
	}
	l.begun = true
	for t := range snapshot {
		if t.Pod == nil || l.arrivals.Full() {
			continue
		}
		asked, ok := readRequest(t.Pod, s)
		if ok {
			l.arrivals.Note(sharing.Owner(t.Pod.UID), worth.KindOf(asked, needsOf(t)))
		}
	}
}

// readRequest reads what a pod asks for; nil for one without devices, and false if it has mistakes.
func readRequest(pod *corev1.Pod, s *nodes.Settings) (*sharing.PodRequest, bool) {
	if !corepod.Asks(pod, s.Names) {
		return nil, true
	}
	neutral := corepod.Read(pod)
	req, mistakes := request.Read(&neutral, s.Names, s.Factor, request.WithDefaults(s.Defaults))
	return &req, len(mistakes) == 0
}

// valuesBare reports whether pods without devices are scored.
func (p *Plugin) valuesBare() bool {
	_, values := p.args.Policy.(policy.Valuer)
	return values && p.args.Weight > 0
}

// lossPoints returns the score of a node by what is lost there, in points; false if the pod's
// policy does not score so.
func (p *Plugin) lossPoints(a *ask, t *api.TaskInfo, q *nodes.Question) (float64, bool) {
	h := worth.Host{Free: q.Free}
	if q.Ledger != nil {
		h.Views = q.Ledger.Views()
	}
	if a == nil {
		return place.Points(h, nil, needsOf(t), p.forecasting, p.learnedBare)
	}
	chosen := p.policyFor(a)
	if _, ok := chosen.(policy.Valuer); !ok {
		return 0, false
	}
	if points, fits := place.Points(h, &a.request, needsOf(t), p.backendsFor(a), chosen); fits {
		return points, true
	}
	return -2 * policy.MaxPoints, true
}
