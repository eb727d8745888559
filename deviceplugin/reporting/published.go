// SPDX-License-Identifier: Apache-2.0

package reporting

import (
	"cmp"

	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/cluster"
	"deviceshare/deviceplugin/legacy"
	"deviceshare/deviceplugin/metrics"
	"deviceshare/deviceplugin/node"
	"deviceshare/deviceplugin/oversight"
	"deviceshare/deviceplugin/settings"
)

// Published is what the node object is kept equal to.
type Published struct {
	Agent         *agent.Agent
	Configuration settings.Configuration
	Amounts       *legacy.Amounts
}

// NodeState implements cluster.NodeSource.
func (p Published) NodeState() (cluster.NodeState, bool) {
	state, device := p.Agent.State(), p.Configuration.Device()
	offered := state.Offered()
	return cluster.NodeState{
		Inventory: state.Published(), Config: p.Configuration.Versions(), Names: device.Names(), Factor: device.MemoryFactor,
		AmountsInStatus: p.Amounts.Source() == legacy.FromNodeStatus, Withdrawn: state.IsWithdrawn(),
		Memory: offered.Memory, Cores: offered.Cores,
	}, state.Scanned()
}

// Unread implements cluster.NodeSource.
func (p Published) Unread() (why string, isFailing bool) {
	state := p.Agent.State()
	why, _ = state.IsUnread()
	return cmp.Or(why, "the device plugin has just started"), state.Fails(node.PartDriver)
}

// Labelled implements cluster.NodeSource. Nothing is sent that is known: whatever is sent makes
// the node be published again.
func (p Published) Labelled(labels map[string]string) {
	if e := (node.Labelled{Labels: labels}); p.Agent.State().IsNews(e) {
		p.Agent.Send(e)
	}
}

// Withdraw implements cluster.NodeSource.
func (p Published) Withdraw() { p.Agent.Send(node.Withdrawing{}) }

// Shown is what the metrics show.
type Shown struct {
	Agent         *agent.Agent
	Configuration *settings.Configuration // may be set after the metrics are made
	Records       *checkpoint.Store
	Audit         *oversight.Oversight
}

// Snapshot implements metrics.States.
func (s Shown) Snapshot() metrics.Snapshot {
	state := s.Agent.State()
	return metrics.Snapshot{
		Offered: state.Inventory(), Working: state.View(func(p node.Permissions) bool { return p.Resume }),
		Config: s.Configuration.Versions(), Records: s.Records.All(), Strangers: s.Audit.Uses(),
	}
}
