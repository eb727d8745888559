// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/lifecycle"
	"deviceshare/deviceplugin/metrics"
	"deviceshare/deviceplugin/node"
)

// allocations are what the kubelet recorded of the count resource.
func (p *plugin) allocations() ([]kubelet.Held, error) {
	record, err := p.kubelet.ReadCheckpoint()
	return record.Of(p.countName()), err
}

// serveWhenReady starts what needs to know the devices.
func (p *plugin) serveWhenReady(ctx context.Context, group *errgroup.Group) error {
	klog.InfoS("waiting for the driver")
	changes, stop := p.agent.Changes()
	defer stop()
	select {
	case <-ctx.Done():
		return nil
	case <-changes:
	}
	klog.InfoS("devices found", "count", len(p.agent.State().Inventory().Devices))
	p.moveDevices(ctx, group)
	amounts := p.newAmounts()
	count := p.countServer()
	publisher, err := p.publisher(published{p, amounts})
	if err != nil {
		return err
	}
	group.Go(func() error { return publisher.Run(ctx) })
	group.Go(func() error { return amounts.Run(ctx) })
	group.Go(func() error { return p.followDevices(ctx) })
	group.Go(func() error { return p.reconcile(ctx) })
	group.Go(func() error { return p.releases.Run(ctx) })
	return count.Run(ctx)
}

// countServer is the server of the resource that pods ask for devices with.
func (p *plugin) countServer() *kubelet.Server {
	var taking sync.Mutex // the last answer of Taken is the last one sent
	var s *kubelet.Server
	s = kubelet.NewServer(kubelet.ServerConfig{
		Directory: p.kubelet.DevicePlugins(), Socket: "deviceshare-count.sock", Offer: countOffer{p},
		Handler: handler{p.keeper},
		Taken: func() {
			taking.Lock()
			defer taking.Unlock()
			p.agent.Send(node.Kubelet{Knows: s.Taken()})
			p.changed()
		},
	})
	return s
}

// countOffer is the resource that pods ask for devices with.
type countOffer struct{ plugin *plugin }

// ResourceName implements kubelet.Resource.
func (c countOffer) ResourceName() string { return c.plugin.countName() }

// Devices implements kubelet.Offer. A device on the way into another mode keeps its
// slots: a pod that comes for the old one is told so when it starts, and placed anew.
func (c countOffer) Devices() []*pluginapi.Device {
	inv := c.plugin.countable()
	return kubelet.Slots(&inv)
}

// Changes implements kubelet.Offer.
func (c countOffer) Changes() (<-chan struct{}, func()) { return c.plugin.agent.Changes() }

// reconcile repairs at the start and now and then.
func (p *plugin) reconcile(ctx context.Context) error {
	for {
		if err := p.keeper.Reconcile(ctx); err != nil && ctx.Err() == nil {
			p.report.trouble(metrics.ProblemReconcile, "DeviceReconcileFailed", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(5 * time.Minute):
		}
	}
}

// handler names allocations for the kubelet.
type handler struct{ keeper *lifecycle.Keeper }

// Allocate implements kubelet.Handler.
func (h handler) Allocate(slots []string) (string, error) {
	id, err := h.keeper.Allocate(slots)
	if err != nil {
		return "", err
	}
	return cdi.Name(id), nil
}

// Start implements kubelet.Handler.
func (h handler) Start(ctx context.Context, slots []string) error { return h.keeper.Start(ctx, slots) }
