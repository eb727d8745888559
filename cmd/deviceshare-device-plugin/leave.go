// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"k8s.io/klog/v2"
)

// leaveFor is how long the plugin works on after it was told to stop and has
// published that the node takes no pods, so that a pod that the scheduler was just
// binding is still admitted.
const leaveFor = 2 * time.Second

// withheld says why the kubelet would refuse every new pod with devices, so that
// the scheduler sends none: a pod that the kubelet has refused has failed for good.
// "" when it would not.
func withheld(leaving, taken bool) string {
	switch {
	case leaving:
		return "the device plugin of this node was stopped"
	case !taken:
		return "the kubelet does not know the devices yet: the device plugin or the kubelet has just started"
	}
	return ""
}

// leave returns when told ends and the node was given time to take no more pods, or
// when the plugin ends by itself, which is when working does.
func (p *plugin) leave(told, working context.Context) {
	select {
	case <-working.Done():
		return
	case <-told.Done():
	}
	if _, ready := p.board.Inventory(); !ready {
		return // nothing is offered
	}
	klog.InfoS("stopping; the node takes no more pods", "after", leaveFor)
	p.leaving.Store(true)
	p.changed()
	select {
	case <-working.Done():
	case <-time.After(leaveFor):
	}
}
