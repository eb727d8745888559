// SPDX-License-Identifier: Apache-2.0

package queues

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/sharing"
	"deviceshare/sharing/quota"
)

// Standings are where queues stand, for tasks that want some resources: what each has and deserves
// of these, and of device memory and compute.
//
// A queue deserves what its field deserved says. Where plugin proportion takes part, a queue that
// says nothing there deserves its share by weight, as proportion divides what there is, but in real
// amounts: a whole device counts with all that it has.
type Standings struct {
	quota.Standings
	counts *Limits
	names  []corev1.ResourceName
	limits []quota.Limit
	// totals is what there is of each amount, and shares the queues among which it is divided
	// by weight; none if queues deserve what they say.
	totals []int64
	shares map[string]*share
}

// share is what a queue brings when amounts are divided by weight.
type share struct {
	weight int64
	// deserved and most are unset where the queue says nothing. Wants is what its tasks have
	// and wait for.
	deserved, most, wants []int64
}

// Standings returns where the queues of a session stand.
func (m *Memory) Standings(ssn *framework.Session, s Snapshot, names []string) *Standings {
	devices := m.charges.updateFromNodes(s.Nodes)
	st := &Standings{
		counts: &Limits{Snapshot: s, memory: m, kinds: devices.kinds}, shares: map[string]*share{},
		Standings: quota.Standings{Of: map[string]*quota.Standing{}, Chains: map[string][]string{}},
	}
	byWeight := isByWeight(ssn)
	st.listAmounts(ssn, names)
	st.openStandings(ssn, byWeight)
	if byWeight {
		st.openShares(ssn, devices.total)
	}
	for _, job := range s.Jobs {
		if _, known := st.Chains[string(job.Queue)]; known {
			st.addJob(job)
		}
	}
	st.divideByWeight()
	return st
}

// isByWeight reports whether plugin proportion takes part in a session.
func isByWeight(ssn *framework.Session) bool {
	for i := range ssn.Tiers {
		for j := range ssn.Tiers[i].Plugins {
			if ssn.Tiers[i].Plugins[j].Name == "proportion" {
				return true
			}
		}
	}
	return false
}

// listAmounts lists what is counted: resources that are not about devices, memory and compute of
// all devices, and what else of devices a queue was told it deserves.
func (st *Standings) listAmounts(ssn *framework.Session, names []string) {
	about := st.counts.Settings.LimitNames()
	for _, name := range names {
		if _, isOfDevices := quota.ReadLimit(name, 0, about); !isOfDevices {
			st.names = append(st.names, corev1.ResourceName(name))
		}
	}
	st.limits = []quota.Limit{{Name: about.Memory, Resource: quota.Memory}, {Name: about.Cores, Resource: quota.Cores}}
	for _, info := range ssn.Queues {
		for _, l := range st.counts.Settings.Capability(info.Queue.Spec.Deserved) {
			if !slices.ContainsFunc(st.limits, func(m quota.Limit) bool { return m.IsAboutSame(&l) }) {
				l.Amount = 0
				st.limits = append(st.limits, l)
			}
		}
	}
}

// openStandings readies the standing of each queue, and of those above it, before anybody has
// anything.
func (st *Standings) openStandings(ssn *framework.Session, byWeight bool) {
	all := Of(ssn, st.counts.Settings)
	if byWeight {
		for i := range all {
			all[i].Parent = "" // proportion knows no queues above others
		}
	}
	hierarchy := quota.NewHierarchy(all, nil)
	n := len(st.names) + len(st.limits)
	unset := slices.Repeat([]int64{quota.Unset}, n)
	st.Of[quota.Root] = &quota.Standing{Has: make([]int64, n), Deserved: unset, Guaranteed: make([]int64, n)}
	for _, info := range ssn.Queues {
		spec := &info.Queue.Spec
		st.Of[info.Name] = &quota.Standing{Has: make([]int64, n), Deserved: st.amountsIn(spec.Deserved, quota.Unset), Guaranteed: st.amountsIn(spec.Guarantee.Resource, 0)}
		st.Chains[info.Name] = hierarchy.Chain(info.Name)
	}
}

// openShares readies what is divided by weight.
func (st *Standings) openShares(ssn *framework.Session, devices quota.Amounts) {
	for _, name := range st.names {
		st.totals = append(st.totals, roundAmount(ssn.TotalResource.Get(name)))
	}
	for i := range st.limits {
		st.totals = append(st.totals, devices.SumFor(&st.limits[i]))
	}
	for _, info := range ssn.Queues {
		st.shares[info.Name] = &share{
			weight: int64(info.Weight), deserved: slices.Clone(st.Of[info.Name].Deserved),
			most: st.amountsIn(info.Queue.Spec.Capability, math.MaxInt64), wants: make([]int64, len(st.totals)),
		}
	}
}

// amountsIn returns the amounts in a list of resources of a queue, unset for those that are not
// there.
func (st *Standings) amountsIn(list corev1.ResourceList, unset int64) []int64 {
	amounts, written := []int64(nil), api.NewResource(list)
	for _, name := range st.names {
		if _, is := list[name]; is {
			amounts = append(amounts, roundAmount(written.Get(name)))
		} else {
			amounts = append(amounts, unset)
		}
	}
	of := st.counts.Settings.Capability(list)
	for i := range st.limits {
		if k := slices.IndexFunc(of, func(l quota.Limit) bool { return l.IsAboutSame(&st.limits[i]) }); k >= 0 {
			amounts = append(amounts, of[k].Amount)
		} else {
			amounts = append(amounts, unset)
		}
	}
	return amounts
}

// roundAmount returns an amount of Volcano's in whole units: a thousandth of a CPU, a byte.
func roundAmount(n float64) int64 {
	return int64(math.Round(min(n, 1<<62)))
}

// addJob adds what the tasks of a job have to its queue and those above it, and what they wait for.
func (st *Standings) addJob(job *api.JobInfo) {
	if least := job.PodGroup; least != nil && len(job.Tasks) == 0 && least.Spec.MinResources != nil {
		st.addWanted(job.Queue, st.amountsIn(*least.Spec.MinResources, 0)) // its pods are yet to be made
	}
	for status, tasks := range job.TaskStatusIndex {
		tenure, holds := tenureOf(status)
		holds = holds && tenure == quota.Stays || status == api.Pipelined
		for _, t := range tasks {
			switch {
			case holds:
				takes := st.Takes(t)
				st.addHeld(job.Queue, takes, 1)
				st.addWanted(job.Queue, takes)
			case status == api.Pending && !t.SchGated && len(st.shares) > 0:
				st.addWanted(job.Queue, st.Takes(t))
			}
		}
	}
}

// addHeld adds amounts, times a sign, to what a queue and those above it have.
func (st *Standings) addHeld(queue api.QueueID, amounts []int64, sign int64) {
	for _, name := range st.Chains[string(queue)] {
		for r, n := range amounts {
			st.Of[name].Has[r] += sign * n
		}
	}
}

// addWanted adds amounts to what a queue has and waits for.
func (st *Standings) addWanted(queue api.QueueID, amounts []int64) {
	if s := st.shares[string(queue)]; s != nil {
		addAmounts(s.wants, amounts)
	}
}

// Note notes that tasks leave their queues for others that have waited and get their places.
func (st *Standings) Note(leave, come []*api.TaskInfo) {
	for _, t := range leave {
		takes, queue := st.Takes(t), api.QueueID(st.counts.queueOf(t))
		st.addHeld(queue, takes, -1)
		for r := range takes {
			takes[r] = -takes[r]
		}
		st.addWanted(queue, takes)
	}
	for _, t := range come {
		st.addHeld(api.QueueID(st.counts.queueOf(t)), st.Takes(t), 1)
	}
	st.divideByWeight()
}

func addAmounts(to, amounts []int64) {
	for r, n := range amounts {
		to[r] += n
	}
}

// Takes returns what a task takes: what it has, or the least that it may get.
func (st *Standings) Takes(t *api.TaskInfo) []int64 {
	takes := make([]int64, 0, len(st.names)+len(st.limits))
	for _, name := range st.names {
		takes = append(takes, roundAmount(t.Resreq.Get(name)))
	}
	of := st.counts.takenAmounts(t)
	for i := range st.limits {
		takes = append(takes, of.SumFor(&st.limits[i]))
	}
	return takes
}

// divideByWeight gives each queue without a number what it deserves by its weight.
func (st *Standings) divideByWeight() {
	for r, total := range st.totals {
		var of []*quota.Standing
		var claims []quota.Claim
		for name, s := range st.shares {
			if s.deserved[r] != quota.Unset {
				total -= min(s.deserved[r], s.wants[r])
				continue
			}
			of = append(of, st.Of[name])
			claims = append(claims, quota.Claim{Weight: s.weight, Wants: s.wants[r], Most: s.most[r], Least: st.Of[name].Guaranteed[r]})
		}
		for i, share := range quota.ShareByWeight(max(total, 0), claims) {
			of[i].Deserved[r] = share
		}
	}
}

// Terms are those on which other queues give pods up for tasks of one job.
type Terms struct {
	*Standings
	*quota.Terms
}

// ForTasks returns the terms for tasks that start together.
func (st *Standings) ForTasks(queue api.QueueID, tasks []*api.TaskInfo) *Terms {
	wants := make([]int64, len(st.names)+len(st.limits))
	for _, t := range tasks {
		addAmounts(wants, st.Takes(t))
	}
	return st.termsOf(queue, wants)
}

// ForAmounts returns the terms for pods that are not there yet, by what is written of them: for
// devices less than they will take.
func (st *Standings) ForAmounts(queue api.QueueID, list corev1.ResourceList) *Terms {
	return st.termsOf(queue, st.amountsIn(list, 0))
}

func (st *Standings) termsOf(queue api.QueueID, wants []int64) *Terms {
	return &Terms{Standings: st, Terms: st.TermsFor(string(queue), wants)}
}

// Refusal says why other queues give nothing up, "" if they may.
func (t *Terms) Refusal() string {
	queue, r, beyond := t.Beyond()
	if !beyond {
		return ""
	}
	name, s := "", t.Of[queue]
	if r < len(t.names) {
		name = string(t.names[r])
	} else {
		name = t.limits[r-len(t.names)].Name
	}
	return fmt.Sprintf("Other queues give nothing up: queue %q has %s of %s, and deserves %s; %s more is too much",
		queue, t.formatAmount(r, s.Has[r]), name, t.formatAmount(r, max(s.Deserved[r], s.Guaranteed[r])), t.formatAmount(r, t.Wants[r]))
}

// formatAmount writes an amount for people.
func (t *Terms) formatAmount(r int, n int64) string {
	switch {
	case r >= len(t.names):
		l := t.limits[r-len(t.names)]
		l.Amount = n
		return l.Text()
	case t.names[r] == corev1.ResourceMemory:
		return sharing.Bytes(n).String()
	}
	return resource.NewMilliQuantity(n, resource.DecimalSI).String()
}
