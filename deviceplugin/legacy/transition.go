// SPDX-License-Identifier: Apache-2.0

package legacy

import (
	"context"
	"errors"
	"io/fs"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"deviceshare/config"
	"deviceshare/deviceplugin/kubelet"
	"deviceshare/sharing"
)

// lookEvery is how often Amounts looks at the kubelet's record.
const lookEvery = 15 * time.Second

// Devices are those whose amounts are offered. Implementations are safe for
// concurrent use.
type Devices interface {
	// Counted are the devices that the kubelet counts; false while they are not known.
	Counted() (sharing.Inventory, bool)
	// Changes gives a channel that holds a token when Counted may answer
	// differently, until it is stopped.
	Changes() (changes <-chan struct{}, stop func())
}

// Pods knows the live pods of this node.
type Pods interface {
	Pod(owner sharing.Owner) (*corev1.Pod, bool)
}

// Configuration is the configuration in force.
type Configuration interface {
	Device() config.Device
}

// Observer is told what Amounts decides. It must not block.
type Observer interface {
	// SourceChanged: Amounts.Source answers differently.
	SourceChanged()
	// InTransition is told at every look why the amounts cannot simply be in the
	// node's status; nil if they can.
	InTransition(obstacle error)
}

// AmountsConfig is what Amounts works with. All fields are needed.
type AmountsConfig struct {
	// Setting is auto, node-status or device-plugin.
	Setting string
	// Sockets is the kubelet's directory of device plugins.
	Sockets       string
	Checkpoint    kubelet.CheckpointReader
	Devices       Devices
	Pods          Pods
	Configuration Configuration
	Observer      Observer
}

// Amounts decides again and again where the kubelet has the amounts of memory and
// compute from, and runs the servers that the legacy way needs.
type Amounts struct {
	cfg    AmountsConfig
	source atomic.Value // AmountSource
	stop   context.CancelFunc
}

// NewAmounts returns amounts of which nothing is decided until Run.
func NewAmounts(cfg AmountsConfig) *Amounts { return &Amounts{cfg: cfg} }

// Source is what was decided last; FromNone before that. It is safe for concurrent
// use.
func (a *Amounts) Source() AmountSource {
	if source, ok := a.source.Load().(AmountSource); ok {
		return source
	}
	return FromNone
}

// Run follows the devices and the kubelet until ctx ends.
func (a *Amounts) Run(ctx context.Context) error {
	changes, stop := a.cfg.Devices.Changes()
	defer stop()
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		a.updateSource(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
		case <-ticker.C:
		}
	}
}

// updateSource looks at the kubelet's record and changes the source if it must.
func (a *Amounts) updateSource(ctx context.Context) {
	record, err := a.cfg.Checkpoint.ReadCheckpoint()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		klog.ErrorS(err, "cannot tell what the legacy device plugin left; taking it for nothing")
	}
	device := a.cfg.Configuration.Device()
	inv, _ := a.cfg.Devices.Counted()
	live := func(o sharing.Owner) bool { _, ok := a.cfg.Pods.Pod(o); return ok }
	units := int64(len(memoryUnits(&inv, device.MemoryFactor)))
	source, obstacle := ChooseAmountSource(a.cfg.Setting, record, []string{device.MemoryName, device.CoreName}, live, units)
	a.cfg.Observer.InTransition(obstacle)
	if a.source.Swap(source) == source {
		return
	}
	klog.InfoS("amounts of memory and compute are offered", "source", source)
	if a.stop != nil {
		a.stop()
		a.stop = nil
	}
	if source == FromDevicePlugin {
		a.startServers(ctx)
	}
	a.cfg.Observer.SourceChanged()
}

// startServers offers the amounts the legacy way until stopped.
func (a *Amounts) startServers(ctx context.Context) {
	ctx, a.stop = context.WithCancel(ctx)
	for socket, offer := range map[string]kubelet.Offer{
		"deviceshare-memory.sock": memoryOffer{a.cfg},
		"deviceshare-cores.sock":  coresOffer{a.cfg},
	} {
		s := kubelet.NewServer(kubelet.ServerConfig{Directory: a.cfg.Sockets, Socket: socket, Offer: offer})
		go func() { _ = s.Run(ctx) }()
	}
}

// memoryOffer is the memory as kubelet devices.
type memoryOffer struct{ cfg AmountsConfig }

func (o memoryOffer) ResourceName() string { return o.cfg.Configuration.Device().MemoryName }

func (o memoryOffer) Changes() (<-chan struct{}, func()) { return o.cfg.Devices.Changes() }

func (o memoryOffer) Devices() []*pluginapi.Device {
	inv, _ := o.cfg.Devices.Counted()
	return o.cfg.withHeld(memoryUnits(&inv, o.cfg.Configuration.Device().MemoryFactor), o.ResourceName())
}

// coresOffer is the compute as kubelet devices.
type coresOffer struct{ cfg AmountsConfig }

func (o coresOffer) ResourceName() string { return o.cfg.Configuration.Device().CoreName }

func (o coresOffer) Changes() (<-chan struct{}, func()) { return o.cfg.Devices.Changes() }

func (o coresOffer) Devices() []*pluginapi.Device {
	inv, _ := o.cfg.Devices.Counted()
	units := unitDevices(&inv, "core", func(d *sharing.Device) int64 { return int64(d.Cores) })
	return o.cfg.withHeld(units, o.ResourceName())
}

// withHeld are units of a resource together with those that live pods hold.
func (c *AmountsConfig) withHeld(units []*pluginapi.Device, resource string) []*pluginapi.Device {
	record, err := c.Checkpoint.ReadCheckpoint()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		klog.ErrorS(err, "cannot tell which units pods hold; those of devices that are not offered may be missing", "resource", resource)
	}
	return withHeld(units, record.Of(resource), func(o sharing.Owner) bool { _, ok := c.Pods.Pod(o); return ok })
}

// memoryUnits is the kubelet devices of the memory, one per unit of factor MiB. More
// than a message holds are not even made.
func memoryUnits(inv *sharing.Inventory, factor int64) []*pluginapi.Device {
	factor = max(factor, 1)
	left := int64(maxUnits) + 1
	return unitDevices(inv, "memory", func(d *sharing.Device) int64 {
		n := min(int64(d.Memory/sharing.MiB)/factor, left)
		left -= n
		return n
	})
}
