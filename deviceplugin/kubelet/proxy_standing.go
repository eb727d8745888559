// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
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

func (p *Proxy) pluginHandover() handover { return handover(p.cfg.Directory) }

// checkMark takes in the mark of the plugin. The caller holds the lock.
func (p *Proxy) checkMark() {
	if p.standing != superseded && p.pluginHandover().isMarked() {
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
	if err := p.pluginHandover().removeMark(); err != nil {
		klog.ErrorS(err, "the keeper does not register; the device plugin will do so itself")
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

// errSuperseded is why a Proxy does not register.
var errSuperseded = errors.New("the device plugin has registered with the kubelet itself")

// registerUnlessSuperseded registers with the kubelet, unless the plugin has left its mark. A
// registration without an answer may still be taken: the lock is kept until there is one.
func (p *Proxy) registerUnlessSuperseded(register func() error) error {
	if p.registering == nil {
		lock, err := p.pluginHandover().lockRegistration()
		if err != nil {
			return fmt.Errorf("not registering, as the device plugin may do so: %w", err)
		}
		p.registering = lock
	}
	p.mu.Lock()
	p.checkMark()
	standing := p.standing
	p.mu.Unlock()
	err := errSuperseded
	if standing != superseded {
		err = register()
	}
	if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Canceled {
		return err
	}
	p.endRegistering()
	return err
}

func (p *Proxy) endRegistering() {
	if p.registering != nil {
		_ = p.registering.Close()
		p.registering = nil
	}
}
