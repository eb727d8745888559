// SPDX-License-Identifier: Apache-2.0

package deviceshare

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/klog/v2"
	"volcano.sh/volcano/pkg/scheduler/api"
	"volcano.sh/volcano/pkg/scheduler/cache"
	"volcano.sh/volcano/pkg/scheduler/framework"

	"deviceshare/plugins/deviceshare/arguments"
	"deviceshare/plugins/deviceshare/nodes"
	"deviceshare/plugins/deviceshare/podstate"
	"deviceshare/plugins/deviceshare/queues"
	"deviceshare/plugins/deviceshare/waiting"
	"deviceshare/sharing"
	"deviceshare/sharing/podspec/corepod"
	"deviceshare/sharing/quota"
	"deviceshare/sharing/wire"
)

var _ framework.BindContextHandler = (*Plugin)(nil)

// Plugin is the plugin of one session.
type Plugin struct {
	arguments framework.Arguments

	// The fields below are set when the session opens.
	judge
	evictions
	// fallbacks are the texts of modeFallback, by what is asked.
	fallbacks map[string]string
	// cycle keeps what is tried for one task in a dry run.
	cycle queues.CycleStates

	// The fields below say why pods wait. witness notes who holds jobs back, actions is how many
	// actions have ended, explained whether pods were told.
	witness   *waiting.Witness
	actions   int
	explained bool
}

// Name is the name the scheduler's configuration uses.
func (p *Plugin) Name() string { return PluginName }

// OnSessionOpen brings the ledgers up to date and takes part in the session.
func (p *Plugin) OnSessionOpen(ssn *framework.Session) {
	start := time.Now()
	defer func() { p.store.metrics.SessionOpen.Observe(time.Since(start).Seconds()) }()

	if p.joinSession(ssn) {
		p.registerCallbacks(ssn)
		p.witness = &waiting.Witness{Plugin: PluginName}
		p.witness.StandBy(ssn)
		p.store.current = p
		p.store.room.OpenSession(ssn, p)
		p.store.evictDrained(ssn)
	}
}

// joinSession readies the plugin for the session; false if the plugin is turned off.
func (p *Plugin) joinSession(ssn *framework.Session) bool {
	read := p.store.readArguments(p.arguments)
	p.args = read.Arguments
	p.store.enabled.Store(!read.Usable || p.args.Enabled)
	if read.Usable && !p.args.Enabled {
		p.store.standAside()
		return false
	}
	p.store.part.Store(int32(takesPart))
	p.store.checkTiers(ssn.Tiers)
	p.settings = p.store.settings.Load()
	switch {
	case !read.Usable:
		p.off = errBadArguments
	case p.settings == nil:
		p.off = p.store.unreadConfigError()
	}
	p.store.followClaims(ssn)
	if err := p.store.requireClaims(); err != nil && p.off == nil {
		p.off = err
	}
	if p.settings == nil {
		defaults := nodes.DefaultSettings()
		defaults.Unread, defaults.AllocatesClaims = true, arguments.AllocatesClaims(ssn.Tiers)
		p.settings = &defaults
	} else {
		p.settings = p.store.arguments.Complete(p.settings, arguments.AllocatesClaims(ssn.Tiers))
		p.store.updateFromSnapshot(ssn, p.settings)
	}
	p.evictions = evictions{judge: &p.judge, jobs: ssn.Jobs, dryRuns: dryRunPreemption(ssn), order: ssn}
	p.nodes, p.infos = p.store.cluster.Nodes(), ssn.Nodes
	p.overlay, p.awaited = newOverlay(), p.store.cluster.Pods().Awaited()
	p.store.mix.Begin(kindsOf(ssn, p.settings))
	p.preferences = newPreferences(&p.args, p.store.backends, p.store.mix)
	p.requests, p.fallbacks = newRequests(p.settings, p.store.claimReader(), p.store.asks, p.store.cluster.SelectsByName()), map[string]string{}
	p.cycle, p.hopeless = ssn, &sync.Map{}
	p.openLimits(ssn)
	return true
}

// namespaceQuotas returns the ResourceQuotas that limit devices, or were meant to.
func (p *Plugin) namespaceQuotas(ssn *framework.Session) []nodes.NamespaceQuota {
	all, err := p.store.objects.quotasOf(ssn).List(labels.Everything())
	if err != nil {
		klog.ErrorS(err, "List the ResourceQuotas that the scheduler has seen")
	}
	return p.settings.NamespaceQuotas(all)
}

// openLimits readies the limits of queues and namespaces. A plugin that places nothing needs none.
func (p *Plugin) openLimits(ssn *framework.Session) {
	seen := p.queueSnapshot()
	if p.off == nil {
		seen.Queues, seen.Quotas = queues.Of(ssn, p.settings), p.namespaceQuotas(ssn)
	}
	p.limits = p.store.queues.Open(seen)
	if p.limits != nil || len(seen.Quotas) > 0 {
		p.store.queues.ReportDoubts(ssn, &seen, p.store.report.Report)
	}
}

// queueSnapshot is the session as queues see it.
func (p *Plugin) queueSnapshot() queues.Snapshot {
	return queues.Snapshot{Nodes: p.nodes, Infos: p.infos, Jobs: p.jobs, Settings: p.settings, Tasks: p}
}

// Request implements queues.Tasks.
func (p *Plugin) Request(t *api.TaskInfo) *sharing.PodRequest { return p.askOf(t).served() }

// RememberRequest implements queues.Tasks.
func (p *Plugin) RememberRequest(t *api.TaskInfo) *sharing.PodRequest {
	return p.rememberAsk(t).served()
}

// Owner implements queues.Tasks.
func (p *Plugin) Owner(t *api.TaskInfo) sharing.Owner {
	if len(t.Pod.Spec.ResourceClaims) > 0 {
		if a := p.askOf(t); a != nil {
			return a.owner()
		}
	}
	return sharing.Owner(t.Pod.UID)
}

// Given implements queues.Tasks.
func (p *Plugin) Given(owner sharing.Owner) (node string, placement *sharing.Placement) {
	if r, placed := p.overlay.placed[owner]; placed {
		return r.node, &r.placement
	}
	return "", nil
}

// OnSessionClose drops what the session reserved. Decisions that were committed
// have been assumed by then.
func (p *Plugin) OnSessionClose(ssn *framework.Session) {
	p.explainWaiting(ssn) // where an action that is not Volcano's came last
	p.store.current = nil
	p.store.room.CloseSession()
	if p.asks != nil {
		p.store.asks = p.asks
	}
	p.judge, p.evictions = judge{store: p.store}, evictions{}
}

// SetupBindContextExtension is called when a decision is committed, right before
// the pod is handed over for binding. From here on the reservation outlives the
// session.
func (p *Plugin) SetupBindContextExtension(_ *cycleState, bind *cache.BindContext) {
	t := bind.TaskInfo
	if p.overlay == nil || !p.askOf(t).needsDevicesOf(p.infos[t.NodeName]) {
		return
	}
	if a := p.askOf(t); a.seen != nil {
		p.decideClaim(t, a)
		return
	}
	h, d := nodes.Handover{Pod: t.Pod, Job: string(t.Job)}, podstate.Decision{Node: t.NodeName}
	if r, ok := p.overlay.placed[sharing.Owner(t.Pod.UID)]; ok && r.node == t.NodeName {
		d.Placement = r.placement
		d.Annotations, d.Refusal = p.buildAnnotations(t, &r.placement)
		if n := p.nodes[t.NodeName]; n != nil && n.HasOurPlugin() && d.Refusal == nil {
			// Should the node go back to the legacy device plugin, that one must not take the
			// pod for one that waits.
			maps.Copy(d.Annotations, wire.Receipt())
		}
		h.Fallback = p.modeFallback(p.askOf(t), &r.placement)
	} else {
		d.Refusal = errNoPlacement
	}
	p.store.cluster.Pods().Decide(h, d)
}

// buildAnnotations returns the texts of a decision. Where placements are signed, one that cannot be
// is an error: the node would not start its pod.
func (p *Plugin) buildAnnotations(t *api.TaskInfo, decided *sharing.Placement) (map[string]string, error) {
	texts, err := wire.PlacementAnnotations(*decided, p.settings.Factor, p.store.now().Unix(), corepod.Refs(t.Pod, p.settings.Names)...)
	if err != nil || p.store.signer == nil {
		return texts, err
	}
	signature, err := p.store.signer.Sign(wire.Signed{Owner: sharing.Owner(t.Pod.UID), Node: t.NodeName, Placement: texts[wire.PodPlacement]})
	if err != nil {
		return nil, fmt.Errorf("sign the placement: %w", err)
	}
	texts[wire.PodSignature] = signature
	return texts, nil
}

// onAllocate follows Volcano when it puts a task on a node.
func (p *Plugin) onAllocate(e *framework.Event) {
	p.store.mix.NotePlacement()
	a := p.rememberAsk(e.Task)
	if !a.needsDevicesOf(p.infos[e.Task.NodeName]) {
		return
	}
	n, ok := p.nodes[e.Task.NodeName]
	if !ok || n.Inventory == nil || a.mistakes != nil || p.off != nil {
		if changeOnAllocate(e.Task) == reserved {
			e.Err = errNotPlaced(e.Task.NodeName)
		}
		return
	}
	joins, err := p.joinsClaim(e.Task, a, n)
	if joins {
		e.Err = err
		return
	}
	request := *p.requestOn(a, n)
	request.Mates = jobMates(e.Task, p.infos[n.Name])
	switch changeOnAllocate(e.Task) {
	case reserved:
		e.Err = p.overlay.reserveDevices(n, &request, p.backendsFor(a), p.policyFor(a), p.limits.AllowanceNow(e.Task, a.served()))
		p.limits.Charge(e.Task, quota.Stays)
	case promised:
		// Volcano keeps a task it has pipelined even if a handler objects, so
		// there is no error to give. It holds no devices then, and takes part in
		// the next session.
		why := p.overlay.promiseDevices(n, p.infos[n.Name], &request, p.backendsFor(a), p.policyFor(a), p.limits.Allowance(e.Task, a.served()))
		p.limits.Charge(e.Task, quota.Arrives)
		if why != "" {
			klog.V(3).InfoS("No devices for a pod that waits for others to leave",
				"pod", klog.KObj(e.Task.Pod), "node", n.Name, "why", why)
		}
	default:
		p.overlay.forgetFuture(n.Name)
		p.undoEviction(e.Task)
		p.limits.Charge(e.Task, quota.Stays)
	}
	if a.claim != nil && e.Err == nil {
		p.overlay.joined[sharing.Owner(e.Task.Pod.UID)] = a.claim.owner
	}
}

// onDeallocate follows Volcano when it takes a task off a node or evicts it.
func (p *Plugin) onDeallocate(e *framework.Event) {
	a := p.rememberAsk(e.Task)
	switch {
	case a == nil:
		return
	case a.seen != nil:
		p.deallocateClaim(e)
		return
	}
	if changeOnDeallocate(e.Task) == moved {
		p.limits.Charge(e.Task, quota.Leaves)
		p.noteEviction(e.Task)
		p.overlay.forgetFuture(e.Task.NodeName)
		return
	}
	p.limits.Uncharge(e.Task)
	owner := sharing.Owner(e.Task.Pod.UID)
	p.overlay.releaseDevices(owner)
	p.store.cluster.Pods().Withdraw(owner)
}
