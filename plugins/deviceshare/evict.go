// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"cmp"
	"slices"

	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/plugins/util"

	"deviceshare/sharing"
	"deviceshare/sharing/place"
)

// evictable says which of the candidates, all on one node, may be evicted for a
// task that asks for devices: those whose devices make it fit, and those that
// have none, which may be needed for other resources. Volcano chooses by sums
// alone: four pods of 2 GiB on four devices look to it like room for 8 GiB.
//
// If no eviction makes the task fit, no pod with devices is given up. If the
// task fits anyway, none is either.
func (p *Plugin) evictable(task *api.TaskInfo, candidates []*api.TaskInfo) ([]*api.TaskInfo, int) {
	a := p.ask(task)
	if a == nil {
		return nil, util.Abstain
	}
	var others, holders []*api.TaskInfo
	for _, c := range candidates {
		if p.holds(c) {
			holders = append(holders, c)
		} else {
			others = append(others, c)
		}
	}
	return append(others, p.enough(a, holders)...), util.Permit
}

// enough returns the least of the tasks that have to leave their node for the
// request to fit, sparing those of high priority; none if not even all of them
// would do.
func (p *Plugin) enough(a *ask, holders []*api.TaskInfo) []*api.TaskInfo {
	if len(holders) == 0 {
		return nil
	}
	n, info := p.nodes[holders[0].NodeName], p.infos[holders[0].NodeName]
	if p.impossible(a, info) != "" {
		return nil
	}
	slices.SortStableFunc(holders, func(x, y *api.TaskInfo) int {
		return cmp.Or(cmp.Compare(y.Priority, x.Priority), cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	stay := make([]bool, len(holders))
	fits := func() bool {
		ledger := p.overlay.future(n, info).Fork()
		for i, h := range holders {
			if !stay[i] {
				ledger.Release(sharing.Owner(h.Pod.UID))
			}
		}
		_, refused := place.Place(ledger.Views(), &a.request, p.store.backends, p.policy(a))
		return !refused.Refused()
	}
	if !fits() {
		return nil
	}
	var leave []*api.TaskInfo
	for i, h := range holders {
		if stay[i] = true; !fits() {
			stay[i] = false
			leave = append(leave, h)
		}
	}
	return leave
}

// holds reports whether a task on a node has devices there, or is not known not
// to.
func (p *Plugin) holds(t *api.TaskInfo) bool {
	n, ok := p.nodes[t.NodeName]
	if !ok || n.inventory == nil {
		return false
	}
	owner := sharing.Owner(t.Pod.UID)
	ledger := p.overlay.now(n)
	_, held := ledger.Placement(owner)
	return held || slices.Contains(ledger.Blocking(), owner)
}
