// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/deviceplugin/kubelet"
	"deviceshare/deviceplugin/legacy"
	"deviceshare/sharing"
)

// amounts decides again and again how memory and compute are offered, and runs
// the servers that the old way needs.
type amounts struct {
	plugin *plugin
	way    atomic.Value // legacy.AmountSource
	stop   context.CancelFunc
	told   string
}

// inCapacity reports whether they belong into the node's capacity.
func (a *amounts) inCapacity() bool {
	way, _ := a.way.Load().(legacy.AmountSource)
	return way == legacy.FromNodeStatus
}

// run follows the devices and the kubelet until ctx ends.
func (a *amounts) run(ctx context.Context) error {
	changes, stop := a.plugin.board.Changes()
	defer stop()
	for {
		a.decide(ctx)
		a.plugin.report.unfit(a.plugin.board.Unfit())
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
			a.plugin.changed()
		case <-time.After(15 * time.Second):
		}
	}
}

// decide looks at the kubelet's record and changes the way if it must.
func (a *amounts) decide(ctx context.Context) {
	p := a.plugin
	record, err := p.kubelet.ReadCheckpoint()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		klog.ErrorS(err, "cannot tell what the old device plugin left; taking it for nothing")
	}
	device := p.config.Current().Device
	inv, _ := p.board.Usable()
	units := int64(len(a.memory(&inv)))
	live := func(o sharing.Owner) bool { _, ok := p.pods.Pod(o); return ok }
	way, why := legacy.ChooseAmountSource(p.o.memoryResources, record, []string{device.MemoryName, device.CoreName}, live, units)
	a.tell(way, why)
	if old, _ := a.way.Swap(way).(legacy.AmountSource); old == way {
		return
	}
	klog.InfoS("amounts of memory and compute are offered", "way", way)
	if a.stop != nil {
		a.stop()
		a.stop = nil
	}
	if way == legacy.FromDevicePlugin {
		a.serve(ctx)
	}
	p.changed()
}

// tell reports why once.
func (a *amounts) tell(way legacy.AmountSource, why string) {
	if why == a.told {
		return
	}
	a.told = why
	if why == "" {
		return
	}
	klog.InfoS("memory and cores cannot simply be in the node's capacity", "way", way, "why", why)
	a.plugin.report.recorder.Event(a.plugin.report.node, corev1.EventTypeWarning, "DeviceAmountsInTransition", short(why))
}

// serve offers the amounts the old way until stopped.
func (a *amounts) serve(ctx context.Context) {
	ctx, a.stop = context.WithCancel(ctx)
	p := a.plugin
	for socket, offer := range map[string]amountOffer{
		"deviceshare-memory.sock": {p, func() string { return p.config.Current().Device.MemoryName }, a.memory},
		"deviceshare-cores.sock": {p, func() string { return p.config.Current().Device.CoreName }, func(inv *sharing.Inventory) []*pluginapi.Device {
			return legacy.Units(inv, "core", func(d *sharing.Device) int64 { return int64(d.Cores) })
		}},
	} {
		s := kubelet.NewServer(kubelet.ServerConfig{Directory: p.kubelet.DevicePlugins(), Socket: socket, Offer: offer})
		go func() { _ = s.Run(ctx) }()
	}
}

// amountOffer offers one amount.
type amountOffer struct {
	plugin  *plugin
	name    func() string
	devices func(*sharing.Inventory) []*pluginapi.Device
}

// ResourceName implements kubelet.Resource.
func (a amountOffer) ResourceName() string { return a.name() }

// Devices implements kubelet.Offer.
func (a amountOffer) Devices() []*pluginapi.Device {
	inv, _ := a.plugin.board.Usable()
	return a.devices(&inv)
}

// Changes implements kubelet.Offer.
func (a amountOffer) Changes() (<-chan struct{}, func()) { return a.plugin.board.Changes() }

// memory is the kubelet devices of the memory. More than a message holds are not
// even made.
func (a *amounts) memory(inv *sharing.Inventory) []*pluginapi.Device {
	factor := max(a.plugin.config.Current().Device.MemoryFactor, 1)
	left := int64(legacy.MaxUnits) + 1
	return legacy.Units(inv, "memory", func(d *sharing.Device) int64 {
		n := min(int64(d.Memory/sharing.MiB)/factor, left)
		left -= n
		return n
	})
}
