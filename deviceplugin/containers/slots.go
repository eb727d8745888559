// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"context"
	"sync"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/node"
	"deviceshare/deviceplugin/settings"
)

// slots is the resource that pods ask for devices with, as the kubelet is offered it.
type slots struct {
	*agent.Agent
	settings.Configuration
	holdings *HoldingsWatch
}

// Devices implements kubelet.Offer. Who holds which slots is looked up each time: a kubelet that
// starts admits its pods by this list. There are none at the very end: a keeper would go on
// offering what it was told last.
func (s slots) Devices() []*pluginapi.Device {
	if s.State().IsFinal() {
		return nil
	}
	s.holdings.Look(context.Background())
	state := s.State()
	return kubelet.Slots(state.Slots(), state.NUMA())
}

// NewSlotServer returns the server of the slots, at the proxy that is registered for us, or at the
// kubelet. It tells the agent whether the kubelet knows the devices.
func NewSlotServer(places *kubelet.Places, c settings.Configuration, w *HoldingsWatch) *kubelet.Server {
	var taking sync.Mutex // so that the last answer of Taken is the last one sent
	var server *kubelet.Server
	server = kubelet.NewServer(kubelet.ServerConfig{
		Directory: places.Root.DevicePlugins(), Keeper: places.Keeper, Move: places.Move,
		Socket: "deviceshare-count.sock", Offer: slots{w.agent, c, w}, Handler: w.m,
		Taken: func() {
			taking.Lock()
			defer taking.Unlock()
			w.agent.Send(node.Kubelet{Knows: server.Taken()})
		},
	})
	return server
}
