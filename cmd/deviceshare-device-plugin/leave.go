// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/node"
)

// leaveFor is how long the plugin works on after it was told to stop and has
// published that the node takes no pods, so that a pod that the scheduler was just
// binding is still admitted.
const leaveFor = 2 * time.Second

// leave returns when told ends and the node was given time to take no more pods, or
// when the plugin ends by itself, which is when working does.
func (p *plugin) leave(told, working context.Context) {
	select {
	case <-working.Done():
		return
	case <-told.Done():
	}
	if !p.agent.State().Scanned() {
		return // nothing is offered
	}
	klog.InfoS("stopping; the node takes no more pods", "after", leaveFor)
	p.agent.Send(node.Stopping{})
	p.changed()
	select {
	case <-working.Done():
	case <-time.After(leaveFor):
	}
}
