// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/cluster"
	"deviceshare/deviceplugin/discovery"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/lifecycle"
	"deviceshare/deviceplugin/transition"
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
	changes, _ := p.board.Changes()
	p.mover = transition.New(transition.Config{
		Switchers: p.switchers(), Devices: p.board.Movable, Locks: &p.locks, Changes: changes,
		Holders: func(id sharing.DeviceID) []transition.Holder {
			var out []transition.Holder
			for _, h := range p.keeper.Holders(id) {
				out = append(out, transition.Holder(h))
			}
			return out
		},
		Show: func(id sharing.DeviceID, s transition.Standing) { p.board.SetStanding(id, discovery.Standing(s)) },
		Changed: func(ctx context.Context, _ sharing.DeviceID) {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			p.health.Rescan(ctx)
		},
		// A driver that goes away for longer breaks its devices, and those are not moved.
		Passing: func(err error) bool { return errors.Is(err, driver.ErrClosed) || errors.Is(err, driver.ErrNoDriver) },
		Observe: transition.Observer{Moved: p.report.moved, Waiting: p.waits, Failed: p.report.stuck},
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

// moved reports that a device was brought into its mode.
func (r *reporter) moved(d sharing.Device, took time.Duration) {
	klog.InfoS("device is in its mode", "device", d.ID, "mode", d.Mode, "took", took)
	r.metrics.Moved(d.Mode, "success")
	r.recorder.Eventf(r.node, corev1.EventTypeNormal, "GPUModeChanged", "device %s (index %d) is in mode %s", d.ID, d.Index, d.Mode)
}

// waits reports that a device keeps its mode because of its holders, on the node
// and on each of them.
func (p *plugin) waits(d sharing.Device, why string, holders []transition.Holder) {
	klog.InfoS("device keeps its mode for now", "device", d.ID, "wanted", d.Mode, "why", why)
	r := p.report
	r.recorder.Eventf(r.node, corev1.EventTypeNormal, "GPUModeWaiting", "device %s (index %d) takes no new pods: %s", d.ID, d.Index, short(why))
	for _, h := range holders {
		stays := "stays in mode " + string(h.Mode)
		if h.Mode == "" {
			stays = "stays as it is"
		}
		if pod, live := p.pods.Pod(h.Owner); live && h.Mode != d.Mode {
			r.recorder.Eventf(pod, corev1.EventTypeNormal, "DeviceModeKept",
				"device %s is to be in mode %s and %s until nobody holds it any more, this pod included", d.ID, d.Mode, stays)
		}
	}
}

// stuck reports a device that could not be brought into its mode.
func (r *reporter) stuck(d sharing.Device, err error, fresh bool) {
	var manual *nodeapi.Manual
	result, reason, text := "failure", "GPUModeChangeFailed", err.Error()
	if errors.As(err, &manual) {
		result, reason, text = "manual", "GPUModeNeedsAdministrator", manual.Why+": "+manual.Do
	}
	r.metrics.Moved(d.Mode, result)
	if !fresh {
		return
	}
	klog.ErrorS(err, "device cannot be brought into its mode", "device", d.ID, "mode", d.Mode)
	r.problem(reason, "device %s (index %d) cannot be brought into mode %s and takes no pods: %s", d.ID, d.Index, d.Mode, short(text))
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
