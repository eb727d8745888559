// SPDX-License-Identifier: Apache-2.0

package room

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"volcano.sh/volcano/pkg/scheduler/api"

	"deviceshare/plugins/deviceshare/holds"
	"deviceshare/plugins/deviceshare/queues"
	"deviceshare/sharing/plan"
	"deviceshare/sharing/quota"
)

// isReclaim reports whether pods of other queues leave.
func (p *planner) isReclaim() bool { return p.action == holds.Reclaim }

// allowedBy returns those of the victims that the other plugins allow to evict.
func (p *planner) allowedBy(t *api.TaskInfo, victims []*api.TaskInfo) []*api.TaskInfo {
	switch p.action {
	case holds.Reclaim:
		return p.Reclaimable(t, victims)
	case holds.Consolidate:
		return victims // they say themselves that they may be moved
	}
	return p.Preemptable(t, victims)
}

// givers are the queues that may give pods up for a job.
type givers struct {
	*queues.Terms
	// levels are what a queue may give up and those above it, none if it gives nothing.
	levels map[api.QueueID][]quota.Level
	// named has one giver for each of the levels, and turns the rank of each queue.
	named map[string]*plan.Giver
	turns map[api.QueueID]int
	// others says that queues have anything that is wanted and may be reclaimed.
	others bool
}

// giversFor returns the queues that may give pods up for a job, on some terms.
func (s *session) giversFor(job *api.JobInfo, terms *queues.Terms) *givers {
	g := &givers{
		Terms:  terms,
		levels: map[api.QueueID][]quota.Level{}, named: map[string]*plan.Giver{}, turns: map[api.QueueID]int{},
	}
	var order []api.QueueID
	excess := map[api.QueueID]float64{}
	for id, queue := range s.Queues {
		if id == job.Queue || !queue.Reclaimable() {
			continue
		}
		excess[id] = g.Excess(queue.Name)
		g.others = g.others || excess[id] > 0
		if levels, gives := g.GivenBy(queue.Name); gives {
			g.levels[id] = levels
			order = append(order, id)
			for i := range levels {
				g.named[levels[i].Queue] = &plan.Giver{Most: levels[i].Most}
			}
		}
	}
	slices.SortFunc(order, func(x, y api.QueueID) int { return cmp.Or(cmp.Compare(excess[y], excess[x]), cmp.Compare(x, y)) })
	for i, id := range order {
		if g.turns[id] = i; i > 0 && excess[id] == excess[order[i-1]] {
			g.turns[id] = g.turns[order[i-1]]
		}
	}
	return g
}

// takeTerms has the givers of a world go by the terms of another job. It returns false if other
// pods may leave by those, or the queues give in another order.
func (g *givers) takeTerms(of *givers) bool {
	same := func(a, b []quota.Level) bool {
		return slices.EqualFunc(a, b, func(x, y quota.Level) bool { return x.IsBound == y.IsBound && slices.Equal(x.Above, y.Above) })
	}
	if !maps.Equal(g.turns, of.turns) || !maps.EqualFunc(g.levels, of.levels, same) {
		return false
	}
	g.Terms, g.levels, g.others = of.Terms, of.levels, of.others
	for name, giver := range of.named {
		g.named[name].Most = giver.Most
	}
	return true
}

// standingsBy are where queues stand, by the resources that are asked for.
type standingsBy map[string]*queues.Standings

// forResources returns where queues stand, for tasks that ask for some resources.
func (known standingsBy) forResources(s *session, resources []string) *queues.Standings {
	key := strings.Join(resources, " ")
	if known[key] == nil {
		known[key] = s.devices.Standings(s.Session, resources)
	}
	return known[key]
}

// giveUp reports whether a queue may give a task up, as far as it is about what the task takes.
func (g *givers) giveUp(t *api.TaskInfo, queue api.QueueID) bool {
	levels, takes := g.levels[queue], []int64(nil)
	for i := range levels {
		if takes == nil {
			takes = g.Takes(t)
		}
		if !levels[i].GivesUp(takes) {
			return false
		}
	}
	return len(levels) > 0
}

// describeVictim notes who gives a victim up, and what they lose.
func (g *givers) describeVictim(v *plan.Victim, t *api.TaskInfo, queue api.QueueID) {
	v.Gives, v.Turn = g.Takes(t), g.turns[queue]
	for i := range g.levels[queue] {
		v.Givers = append(v.Givers, g.named[g.levels[queue][i].Queue])
	}
}

// explainRefusal says why other queues give nothing up for a job, "" if they have nothing that it
// wants.
func (g *givers) explainRefusal() string {
	if g == nil || !g.others {
		return ""
	}
	return g.Refusal()
}
