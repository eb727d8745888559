// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	"deviceshare/config"
	"deviceshare/config/live"
	"deviceshare/deviceplugin/legacy"
	"deviceshare/sharing"
)

// newAmounts decides where the kubelet has the amounts of memory and compute from.
func (p *plugin) newAmounts() *legacy.Amounts {
	return legacy.NewAmounts(legacy.AmountsConfig{
		Setting: p.o.memoryResources, Sockets: p.kubelet.DevicePlugins(), Checkpoint: p.kubelet,
		Devices: p, Pods: p.pods, Configuration: inForce{p.config}, Observer: amountsObserver{p},
	})
}

// inForce is the configuration in force.
type inForce struct{ watcher *live.Watcher }

// Device implements legacy.Configuration.
func (c inForce) Device() config.Device { return c.watcher.Current().Device }

// amountsObserver tells the publisher and the node.
type amountsObserver struct{ plugin *plugin }

// SourceChanged implements legacy.Observer.
func (a amountsObserver) SourceChanged() { a.plugin.changed() }

// InTransition implements legacy.Observer.
func (a amountsObserver) InTransition(why string) {
	r := a.plugin.report
	r.recorder.Event(r.node, corev1.EventTypeWarning, "DeviceAmountsInTransition", short(why))
}

// Usable implements legacy.Devices.
func (p *plugin) Usable() (sharing.Inventory, bool) { return p.countable(), p.agent.State().Scanned() }

// Changes implements legacy.Devices.
func (p *plugin) Changes() (<-chan struct{}, func()) { return p.agent.Changes() }

// followDevices has changed devices published.
func (p *plugin) followDevices(ctx context.Context) error {
	changes, stop := p.agent.Changes()
	defer stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changes:
			p.changed()
		}
	}
}
