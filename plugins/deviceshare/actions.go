// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/conf"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/holds"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/waiting"
	"deviceshare/plugins/deviceshare/waiting/news"
)

// WrapActions makes Volcano's actions keep what they clear for those for whom they clear it, and
// end with what the plugin tells waiting pods; counts whom they evict, and notes that the session
// goes on. It must run after the actions were registered and before the scheduler reads its
// configuration.
//
// The end of the session is too late: plugins close it in no order, and gang writes what it finds
// into the group of the pods.
func (s *Store) WrapActions() {
	RegisterActions()
	for _, name := range []string{"enqueue", "allocate", "backfill", "preempt", "reclaim", "shuffle", holds.Consolidate} {
		if a, ok := framework.GetAction(name); ok {
			framework.RegisterAction(s.Explained(s.MakingRoom(a)))
		}
	}
}

// RegisterActions has Volcano know the actions that it does not have itself. It must run before the
// scheduler reads its configuration.
func RegisterActions() { framework.RegisterAction(consolidateAction{}) }

// Explained returns an action of Volcano that ends with what the plugin tells waiting pods.
func (s *Store) Explained(a framework.Action) framework.Action { return explainedAction{a, s} }

// explainedAction is an action of Volcano of which the evictions are counted. The last one of a
// session explains.
type explainedAction struct {
	framework.Action
	store *Store
}

// Execute implements framework.Action.
func (a explainedAction) Execute(ssn *framework.Session) {
	a.store.pulse.Beat("action " + a.Name() + " began")
	a.Action.Execute(ssn)
	a.store.pulse.Beat("action " + a.Name() + " ended")
	p := a.store.current
	if p == nil {
		a.store.standAside()
		return
	}
	p.countEvictions(a.Name())
	if p.actions++; p.actions >= len(conf.EnabledActionMap) {
		p.explainWaiting(ssn)
	}
}

// explainWaiting tells pods why they wait, once in a session.
func (p *Plugin) explainWaiting(ssn *framework.Session) {
	if p.overlay == nil || p.explained {
		return
	}
	p.explained = true
	p.limits.DropClaims()
	told := map[*api.JobInfo][]waitingTask{}
	p.store.waiting.Explain(waiting.Session{
		Session: ssn, Scheduler: p, Off: p.off, Devices: p.nodes, Settings: p.settings, Largest: p.store.largest,
		Limits: p.limits, Witness: p.witness, Now: p.store.uptimeSeconds(),
		Told: func(job *api.JobInfo, t *api.TaskInfo, cause news.Cause) {
			if p.store.demand.IsOn() {
				told[job] = append(told[job], waitingTask{t, cause})
			}
		},
	})
	p.askForNodes(ssn, told)
}

// Ask implements waiting.Scheduler.
func (p *Plugin) Ask(t *api.TaskInfo) (waiting.Ask, bool) {
	a := p.rememberAsk(t)
	if a == nil {
		return waiting.Ask{}, false
	}
	return waiting.Ask{Request: &a.request, Mistakes: a.mistakes, IsUncertain: a.uncertain, Kind: a.kind.Kind, Shape: p.shapeOf(a)}, true
}

// Answer implements waiting.Scheduler.
func (p *Plugin) Answer(t *api.TaskInfo, n *nodes.Node, info *api.NodeInfo) string {
	a := p.askOf(t)
	if err := p.requireServing(a, n); err != nil {
		return err.Error()
	}
	if text, isSettled := p.claimAnswer(a, n.Name); isSettled {
		return text
	}
	if refused, _ := p.checkDevices(a, n, t, info, nil); refused.Refused() {
		text, _ := p.describeRefusal(a, n, &refused)
		return text
	}
	return ""
}
