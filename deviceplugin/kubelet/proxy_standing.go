// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"k8s.io/klog/v2"
)

// standing is what the registration of a Proxy with the kubelet is worth, if it has one.
type standing int

const (
	// inForce: nobody else has registered since.
	inForce standing = iota
	// superseded: the plugin has registered with the kubelet itself. Calls go there. Lists of ours
	// would be taken in all the same.
	superseded
	// renewing: the plugin is back here, and we have to register anew.
	renewing
)

func (p *Proxy) pluginMark() supersededMark { return supersededMark(p.cfg.Directory) }

// checkMark takes in the mark of the plugin. The caller holds the lock.
func (p *Proxy) checkMark() {
	if p.standing != superseded && p.pluginMark().isLeft() {
		klog.InfoS("the device plugin has registered with the kubelet itself; its slots are not offered here", "resource", p.state.resource)
		p.standing = superseded
		p.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	}
}

// renewRegistration takes in that the plugin has listed its slots here, for the first time in a
// session. The caller holds the lock.
func (p *Proxy) renewRegistration() {
	if p.checkMark(); p.standing != superseded {
		return
	}
	if err := p.pluginMark().removeFile(); err != nil {
		klog.ErrorS(err, "registering anew with the kubelet; it will be done again with every start of the device plugin")
	}
	p.standing = renewing
	p.allocations.Clear() // the plugin has given slots to others meanwhile
	if p.dismiss != nil {
		p.dismiss()
	}
}

// beginRegistration begins a registration with the kubelet, which ends with its context.
func (p *Proxy) beginRegistration(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dismiss = cancel
	if p.standing == superseded {
		cancel()
	} else {
		p.standing = inForce
	}
	return ctx
}
