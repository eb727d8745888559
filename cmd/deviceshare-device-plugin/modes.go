// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/agent"
	"deviceshare/deviceplugin/cluster"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/lifecycle"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
	"deviceshare/sharing/nodeapi"
	"deviceshare/sharing/wire"
)

// switchers are the preparers whose mode is a state of the device.
func (p *plugin) switchers() []nodeapi.Switcher {
	var out []nodeapi.Switcher
	for _, x := range p.preparers {
		if s, ok := x.(nodeapi.Switcher); ok {
			out = append(out, s)
		}
	}
	return out
}

// versions identifies the configuration in force.
func (p *plugin) versions() wire.ConfigVersions {
	v := p.config.Current()
	return wire.ConfigVersions{Device: v.Device.Hash(), Node: v.Node.Hash(), Geometry: v.Device.GeometryHash()}
}

// assembleModes makes the parts that change devices and give back pods that were
// placed before a change.
func (p *plugin) assembleModes() {
	p.mover = agent.NewMover(agent.MoverConfig{
		Agent: p.agent, Switchers: p.switchers(), Holders: p, Devices: &p.locks, Driver: p.monitor,
		// A driver that goes away for longer breaks its devices, and those are not moved.
		IsPassing: func(err error) bool { return errors.Is(err, driver.ErrClosed) || errors.Is(err, driver.ErrNoDriver) },
		Failed:    p.report.attemptFailed,
	})
	p.evictor = cluster.NewEvictor(cluster.EvictorConfig{Client: p.client, Placements: placements{p}})
}

// placements tells what becomes of pods that were placed before a change.
type placements struct{ plugin *plugin }

// Started implements cluster.Placements.
func (x placements) Started(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning || lifecycle.Started(pod, x.plugin.config.Current().Device.Names())
}

// Evicted implements cluster.Placements.
func (x placements) Evicted(pod *corev1.Pod, why string) { x.plugin.report.evicted(pod, why) }

// Kept implements cluster.Placements.
func (x placements) Kept(pod *corev1.Pod, why string) { x.plugin.report.kept(pod, why) }

// Holders implements agent.Holders.
func (p *plugin) Holders(id sharing.DeviceID) []node.Holder { return p.keeper.Holders(id) }

// refused is told about a container that may not start.
func (p *plugin) refused(pod *corev1.Pod, err error) {
	p.report.refused(pod, err)
	var misplaced *nodeapi.Misplaced
	if pod != nil && errors.As(err, &misplaced) {
		p.evictor.Replace(pod, misplaced.Why)
	}
}

// moveDevices brings devices into their modes. What runs on them is recorded first
// where a record was lost. It returns when all have been looked at, or after a
// while: a device that takes long must not keep the others from being published.
func (p *plugin) moveDevices(ctx context.Context, group *errgroup.Group) {
	p.keeper.Recall()
	group.Go(func() error { return p.mover.Run(ctx) })
	select {
	case <-ctx.Done():
	case <-p.mover.Looked():
	case <-time.After(10 * time.Second):
		klog.InfoS("some devices are still on the way into their modes; the others are published")
	}
}

// evicted reports a pod that goes so that it is placed anew.
func (r *reporter) evicted(pod *corev1.Pod, why string) {
	r.metrics.Misplaced("evicted")
	r.recorder.Eventf(pod, corev1.EventTypeWarning, "DevicePlacedAnew",
		"evicting the pod so that it is placed anew, since this node cannot start it as it was placed: %s", short(why))
}

// kept reports a pod that was refused for good and stays.
func (r *reporter) kept(pod *corev1.Pod, why string) {
	r.metrics.Misplaced("kept")
	r.recorder.Eventf(pod, corev1.EventTypeWarning, "DevicePlacementRefused", "this node cannot start the pod as it was placed: %s", short(why))
}
