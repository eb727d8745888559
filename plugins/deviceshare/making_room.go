// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/room"
	"deviceshare/plugins/deviceshare/waiting"
	"deviceshare/sharing"
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
	case "preempt", "reclaim":
		a.store.room.Choose(a.Action, held)
	default:
		a.Action.Execute(ssn)
	}
	if a.Name() == "enqueue" && isActionEnabled("preempt") {
		a.store.room.LetIn(held)
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
		return a.shape + a.request.Group
	}
	return ""
}

// IsPromised implements room.Devices.
func (p *Plugin) IsPromised(t *api.TaskInfo) bool {
	if !p.rememberAsk(t).needsDevicesOf(p.infos[t.NodeName]) {
		return true
	}
	r, placed := p.overlay.placed[sharing.Owner(t.Pod.UID)]
	return placed && r.node == t.NodeName
}

// JudgeFuture implements room.Devices.
func (p *Plugin) JudgeFuture(on bool) { p.judgesFuture = on }

// IsComplete implements room.Devices.
func (p *Plugin) IsComplete() bool { return len(p.awaited) == 0 }

// IsHeldBackBySum implements room.HeldBack. Plugin overcommit adds up the whole cluster: on a full
// one it keeps out every job, however important.
func (h heldBack) IsHeldBackBySum(job *api.JobInfo) bool {
	return h.witness.IsHeldBackOnlyBy(h.session, job, "overcommit")
}

// RoomFor implements waiting.Scheduler.
func (p *Plugin) RoomFor(t *api.TaskInfo) string { return p.store.room.Text(t) }
