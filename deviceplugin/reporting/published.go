// SPDX-License-Identifier: Apache-2.0

package reporting

import (
	"cmp"

	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/cluster"
	"deviceshare/deviceplugin/legacy"
	"deviceshare/deviceplugin/metrics"
	"deviceshare/deviceplugin/metrics/occupancy"
	"deviceshare/deviceplugin/node"
	"deviceshare/deviceplugin/settings"
)

// published is what the node object is kept equal to.
type published struct {
	agent    *agent.Agent
	settings settings.Configuration
	amounts  *legacy.Amounts
}

// NewNodeSource returns what the node object is kept equal to.
func NewNodeSource(a *agent.Agent, c settings.Configuration, amounts *legacy.Amounts) cluster.NodeSource {
	return published{a, c, amounts}
}

func (p published) NodeState() (cluster.NodeState, bool) {
	state, device := p.agent.State(), p.settings.Device()
	offered := state.Offered()
	return cluster.NodeState{
		Inventory: state.Published(), Config: p.settings.Versions(), Names: device.Names(), Factor: device.MemoryFactor,
		AmountsInStatus: p.amounts.Source() == legacy.FromNodeStatus, Withdrawn: state.IsWithdrawn(),
		Memory: offered.Memory, Cores: offered.Cores,
	}, state.Scanned()
}

func (p published) Unread() (why string, isFailing bool) {
	state := p.agent.State()
	why, _ = state.IsUnread()
	return cmp.Or(why, "the device plugin has just started"), state.Fails(node.PartDriver)
}

// Labelled implements cluster.NodeSource. Nothing is sent that is known: whatever is sent makes
// the node be published again.
func (p published) Labelled(labels map[string]string) {
	if e := (node.Labelled{Labels: labels}); p.agent.State().IsNews(e) {
		p.agent.Send(e)
	}
}

// WantDriver implements cluster.NodeSource.
func (p published) WantDriver(is bool) {
	if p.agent.State().IsDriverWanted() != is {
		p.agent.Send(node.DriverWanted{Is: is})
	}
}

func (p published) Withdraw() { p.agent.Send(node.Withdrawing{}) }

// shown is what the metrics show.
type shown struct {
	agent     *agent.Agent
	settings  settings.Configuration
	records   *checkpoint.Store
	strangers strangers
}

// strangers are those who use devices without a share.
type strangers interface{ Uses() []occupancy.Use }

// NewStates returns what the metrics show.
func NewStates(a *agent.Agent, c settings.Configuration, records *checkpoint.Store, s strangers) metrics.States {
	return shown{a, c, records, s}
}

func (s shown) Snapshot() metrics.Snapshot {
	state := s.agent.State()
	return metrics.Snapshot{
		Offered: state.Inventory(), Working: state.View(func(p node.Permissions) bool { return p.Resume }),
		Config: s.settings.Versions(), Records: s.records.All(), Strangers: s.strangers.Uses(),
	}
}
