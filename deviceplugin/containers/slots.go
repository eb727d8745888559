// SPDX-License-Identifier: Apache-2.0

package containers

import (
	"context"
	"sync"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/node"
	"deviceshare/deviceplugin/settings"
)

// Slots is the resource that pods ask for devices with, as the kubelet is offered it.
type Slots struct {
	*agent.Agent
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
func NewSlotServer(places *kubelet.Places, s Slots, m *Manager) *kubelet.Server {
	var taking sync.Mutex // so that the last answer of Taken is the last one sent
	var server *kubelet.Server
	server = kubelet.NewServer(kubelet.ServerConfig{
		Directory: places.Root.DevicePlugins(), Keeper: places.Keeper, Move: places.Move,
		Socket: "deviceshare-count.sock", Offer: s, Handler: handler{m},
		Taken: func() {
			taking.Lock()
			defer taking.Unlock()
			s.Send(node.Kubelet{Knows: server.Taken()})
		},
	})
	return server
}

// handler names allocations for the kubelet.
type handler struct{ *Manager }

// Allocate implements kubelet.Handler.
func (h handler) Allocate(slots []string) (string, error) {
	id, err := h.Manager.Allocate(slots)
	if err != nil {
		return "", err
	}
	return cdi.Name(id), nil
}

// Allocated implements kubelet.Handler. A name that is not one of ours is ignored.
func (h handler) Allocated(slots []string, name string) {
	if id, ours := cdi.ID(name); ours {
		h.Manager.Allocated(slots, id)
	}
}

// Forget implements kubelet.Handler.
func (h handler) Forget() { h.ForgetAllocations() }
