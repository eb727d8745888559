// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"

	"volcano.sh/apis/pkg/apis/scheduling"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/holds"
	"deviceshare/plugins/deviceshare/queues"
	"deviceshare/plugins/deviceshare/room"
	"deviceshare/plugins/deviceshare/waiting"
	"deviceshare/sharing"
	"deviceshare/sharing/plan"
	"deviceshare/sharing/quota"
)

var _ room.Devices = (*Plugin)(nil)

// MakingRoom returns an action of Volcano that keeps what preempt and reclaim clear for those for
// whom it was cleared. Without the plugin the action is Volcano's.
func (s *Store) MakingRoom(a framework.Action) framework.Action { return roomAction{a, s} }

type roomAction struct {
	framework.Action
	store *Store
}

// Execute implements framework.Action.
func (a roomAction) Execute(ssn *framework.Session) {
	p := a.store.current
	if p == nil {
		a.Action.Execute(ssn)
		return
	}
	a.store.room.BeginSession()
	clear(p.now) // what was evicted before this session was counted then
	held := heldBack{p.witness, ssn}
	switch a.Name() {
	case holds.Consolidate:
		limits, mistakes := readMoveLimits(framework.GetArgOfActionFromConf(ssn.Configurations, a.Name()))
		if a.store.checkAction(a.Name(), mistakes...) {
			a.store.room.Consolidate(limits)
		}
	case holds.Preempt, holds.Reclaim:
		by, mistakes := engineOf(ssn, a.Name())
		if a.store.checkAction(a.Name(), mistakes...) {
			a.store.room.Choose(a.Action, by, held)
		}
	default:
		a.Action.Execute(ssn)
	}
	if a.Name() == "enqueue" {
		a.store.room.LetIn(held, isActionEnabled(holds.Preempt), isActionEnabled(holds.Reclaim))
	}
}

// engineOf returns what chooses the victims of an action, by its arguments.
func engineOf(ssn *framework.Session, action string) (by room.Engine, mistakes []string) {
	switch by := framework.GetArgOfActionFromConf(ssn.Configurations, action)["engine"]; by {
	case nil, string(room.Planner):
		return room.Planner, nil
	case string(room.Volcano):
		return room.Volcano, nil
	default:
		return "", []string{fmt.Sprintf("configurations[%s].arguments.engine: unknown engine %q: want %q or %q", action, by, room.Planner, room.Volcano)}
	}
}

// heldBack asks who holds jobs back in a session.
type heldBack struct {
	witness *waiting.Witness
	session *framework.Session
}

// Shape implements room.Devices.
func (p *Plugin) Shape(t *api.TaskInfo) string {
	if a := p.rememberAsk(t); a != nil {
		return a.amounts + a.request.Neighbours.Rules()
	}
	return ""
}

// Names implements room.Devices.
func (p *Plugin) Names(t *api.TaskInfo) string { return p.namesOf(p.rememberAsk(t)) }

// IsPromised implements room.Devices.
func (p *Plugin) IsPromised(t *api.TaskInfo) bool {
	if !p.rememberAsk(t).needsDevicesOf(p.infos[t.NodeName]) {
		return true
	}
	a := p.rememberAsk(t)
	if node := p.claimNode(a); node != "" {
		return node == t.NodeName
	}
	r, placed := p.overlay.placed[a.owner()]
	return placed && r.node == t.NodeName
}

// JudgeFuture implements room.Devices.
func (p *Plugin) JudgeFuture(on bool) { p.judgesFuture = on }

// Wish implements room.Devices.
func (p *Plugin) Wish(t *api.TaskInfo) (plan.Wish, bool) {
	a := p.rememberAsk(t)
	if a == nil {
		return plan.Wish{}, p.off == nil
	}
	if p.off != nil || a.served() == nil || a.claim != nil || p.awaitsRoom(t, a) { // nobody leaves for a claim yet
		return plan.Wish{}, false
	}
	return plan.Wish{Request: a.served(), Backends: p.backendsFor(a), Policy: p.policyFor(a)}, true
}

// Lacks implements room.Devices.
func (p *Plugin) Lacks(tasks []*api.TaskInfo) []int64 { return p.limits.Lacks(tasks) }

// AccountOf implements room.Devices.
func (p *Plugin) AccountOf(tasks []*api.TaskInfo) quota.Account { return p.limits.AccountOf(tasks) }

// Frees implements room.Devices.
func (p *Plugin) Frees(t *api.TaskInfo, account quota.Account) []int64 {
	return p.limits.Frees(t, account)
}

// Standings implements room.Devices.
func (p *Plugin) Standings(ssn *framework.Session, names []string) *queues.Standings {
	return p.store.queues.Standings(ssn, p.queueSnapshot(), names)
}

// Serves implements room.Devices.
func (p *Plugin) Serves(t *api.TaskInfo, info *api.NodeInfo) bool {
	a := p.askOf(t)
	return a == nil || p.requireServing(a, p.nodes[info.Name]) == nil
}

// Future implements room.Devices.
func (p *Plugin) Future(node string) []sharing.View {
	n := p.nodes[node]
	if n == nil || n.Ledger == nil {
		return nil
	}
	return p.overlay.futureLedger(n, p.infos[node]).Views()
}

// JudgeMoves implements room.Devices.
func (p *Plugin) JudgeMoves(on bool) {
	p.judgesFuture = on
	switch {
	case on && p.limits != nil:
		p.limits, p.limitsAside = nil, p.limits
	case !on && p.limitsAside != nil:
		p.limits, p.limitsAside = p.limitsAside, nil
	}
}

// Reserve implements room.Devices.
func (p *Plugin) Reserve(t *api.TaskInfo, node string, placement *sharing.Placement, counts bool) error {
	a, n, info := p.rememberAsk(t), p.nodes[node], p.infos[node]
	if !a.needsDevicesOf(info) {
		return nil
	}
	if err := p.requireServing(a, n); err != nil {
		return err
	}
	request := a.request
	request.Mates = jobMates(t, info)
	why := ""
	if placement != nil {
		why = p.overlay.keepDevices(n, info, request.Owner, placement)
	} else {
		why = p.overlay.promiseDevices(n, info, &request, p.backendsFor(a), p.policyFor(a), nil)
	}
	if why != "" {
		return fmt.Errorf("keep devices of node %s for pod %s: %s", node, t.Name, why)
	}
	if counts {
		p.limits.Charge(t, quota.Arrives)
	}
	return nil
}

// Return implements room.Devices.
func (p *Plugin) Return(t *api.TaskInfo) {
	p.limits.Uncharge(t)
	p.overlay.releaseDevices(sharing.Owner(t.Pod.UID))
}

// IsComplete implements room.Devices. Without the configuration it is not known which devices pods
// have.
func (p *Plugin) IsComplete() bool { return len(p.awaited) == 0 && p.off == nil }

// IsHeldBackBySum implements room.HeldBack. Plugin overcommit adds up the whole cluster, proportion
// and capacity the queue: where all is in use, they keep out every job, however important. They
// also keep jobs out of a queue that is closed, and must go on doing so.
func (h heldBack) IsHeldBackBySum(job *api.JobInfo) bool {
	queue := h.session.Queues[job.Queue]
	return queue != nil && queue.Queue.Status.State == scheduling.QueueStateOpen &&
		h.witness.IsHeldBackOnlyBy(h.session, job, "overcommit", "proportion", "capacity")
}

// RoomFor implements waiting.Scheduler.
func (p *Plugin) RoomFor(t *api.TaskInfo) string { return p.store.room.Text(t) }

// NoRoomFor implements waiting.Scheduler.
func (p *Plugin) NoRoomFor(job *api.JobInfo) string { return p.store.room.Advice(job.UID) }

// NewNodeFor implements waiting.Scheduler.
func (p *Plugin) NewNodeFor(t *api.TaskInfo) string {
	return p.store.demand.Text(t.Pod.UID, p.store.uptimeSeconds())
}
