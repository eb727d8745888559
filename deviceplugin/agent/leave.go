// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"time"

	"k8s.io/klog/v2"

	"deviceshare/deviceplugin/node"
)

// registration tells who is registered with the kubelet.
type registration interface {
	// IsHeld reports whether the kubelet goes on knowing the devices when the plugin ends.
	IsHeld() bool
}

// Leave returns when told ends and the node was given some time to take no more pods, or
// when the plugin ends by itself, which is when working does. A plugin whose registration is held
// by a proxy is not missed: the kubelet goes on admitting pods, and they wait for the next one, if
// there is to be one.
func (a *Agent) Leave(told, working context.Context, r registration, some time.Duration) {
	select {
	case <-working.Done():
		return
	case <-told.Done():
	}
	if !a.State().Scanned() || r.IsHeld() && !a.State().IsWithdrawing() {
		return // nothing is offered, or it stays so
	}
	klog.InfoS("stopping; the node takes no more pods", "after", some)
	a.Send(node.Stopping{})
	select {
	case <-working.Done():
	case <-time.After(some):
	}
}
