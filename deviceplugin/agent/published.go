// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/cluster"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/legacy"
	"deviceshare/deviceplugin/metrics"
	"deviceshare/deviceplugin/node"
	"deviceshare/deviceplugin/settings"
	"deviceshare/sharing"
)

// Counted implements legacy.Devices: the devices that are offered, false before the first scan. The
// kubelet counts those that do not work as well
// (docs/adr/0050-what-is-held-stays-offered.md).
func (a *Agent) Counted() (sharing.Inventory, bool) {
	s := a.State()
	return s.Inventory(), s.Scanned()
}

// Slots is the resource that pods ask for devices with, as the kubelet is offered it.
type Slots struct {
	*Agent
	settings.Configuration
	Holdings *HoldingsWatch
}

// Devices implements kubelet.Offer. Who holds which slots is looked up each time: a kubelet that
// starts admits its pods by this list. There are none at the very end: a keeper would go on
// offering what it was told last.
func (s Slots) Devices() []*pluginapi.Device {
	if s.State().IsFinal() {
		return nil
	}
	s.Holdings.Look(context.Background())
	state := s.State()
	return kubelet.Slots(state.Slots(), state.NUMA())
}

// NewSlotServer returns the server of the slots, at the proxy that is registered for us, or at the
// kubelet. It tells the agent whether the kubelet knows the devices.
func NewSlotServer(places *kubelet.Places, s Slots, keeper *Containers) *kubelet.Server {
	var taking sync.Mutex // so that the last answer of Taken is the last one sent
	var server *kubelet.Server
	server = kubelet.NewServer(kubelet.ServerConfig{
		Directory: places.Root.DevicePlugins(), Keeper: places.Keeper, Move: places.Move,
		Socket: "deviceshare-count.sock", Offer: s, Handler: handler{keeper},
		Taken: func() {
			taking.Lock()
			defer taking.Unlock()
			s.Send(node.Kubelet{Knows: server.Taken()})
		},
	})
	return server
}

// handler names allocations for the kubelet.
type handler struct{ *Containers }

// Allocate implements kubelet.Handler.
func (h handler) Allocate(slots []string) (string, error) {
	id, err := h.Containers.Allocate(slots)
	if err != nil {
		return "", err
	}
	return cdi.Name(id), nil
}

// Allocated implements kubelet.Handler. A name that is not one of ours is ignored.
func (h handler) Allocated(slots []string, name string) {
	if id, ours := cdi.ID(name); ours {
		h.Containers.Allocated(slots, id)
	}
}

// Forget implements kubelet.Handler.
func (h handler) Forget() { h.ForgetAllocations() }

// Published is what the node object is kept equal to.
type Published struct {
	Agent         *Agent
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
	Agent         *Agent
	Configuration *settings.Configuration // may be set after the metrics are made
	Records       *checkpoint.Store
	Audit         *Audit
}

// Snapshot implements metrics.States.
func (s Shown) Snapshot() metrics.Snapshot {
	state := s.Agent.State()
	return metrics.Snapshot{
		Offered: state.Inventory(), Working: state.View(func(p node.Permissions) bool { return p.Resume }),
		Config: s.Configuration.Versions(), Records: s.Records.All(), Strangers: s.Audit.Uses(),
	}
}

// LeaveFor is how long the plugin works on after it was told to stop and has
// published that the node takes no pods, so that a pod that the scheduler was just
// binding is still admitted.
const LeaveFor = 2 * time.Second

// Registration tells who is registered with the kubelet.
type Registration interface {
	// IsHeld reports whether the kubelet goes on knowing the devices when the plugin ends.
	IsHeld() bool
}

// Leave returns when told ends and the node was given some time to take no more pods, or
// when the plugin ends by itself, which is when working does. A plugin whose registration is held
// by a proxy is not missed: the kubelet goes on admitting pods, and they wait for the next one, if
// there is to be one.
func (a *Agent) Leave(told, working context.Context, r Registration, some time.Duration) {
	select {
	case <-working.Done():
		return
	case <-told.Done():
	}
	if !a.State().Scanned() || r.IsHeld() && !a.State().IsWithdrawing() {
		return // nothing is offered, or it stays so
	}
	klog.InfoS("stopping; the node takes no more pods", "after", some)
	a.Send(node.Stopping{})
	select {
	case <-working.Done():
	case <-time.After(some):
	}
}
