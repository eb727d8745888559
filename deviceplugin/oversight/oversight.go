// SPDX-License-Identifier: Apache-2.0

// Package oversight looks at what runs on a node: whether containers have what they were given, whether
// limits hold them, and who uses devices without a share.
package oversight

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"deviceshare/deviceplugin/cdi"
	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/cluster"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// Oversight looks at what runs: whether containers got what they were given (Witness), whether
// limits hold them (Guard), who uses devices without a share (Audit), and whether the node is
// set so that anybody can (bypass).
type Oversight struct {
	Witness *Witness
	Audit   *Audit
	guard   *Guard
	bypass  *bypassWatch
}

// OversightConfig is what an Oversight works with.
type OversightConfig struct {
	AuditOptions
	// OnlyTells leaves containers alone that nothing limits.
	OnlyTells bool
	Agent     interface {
		Send(node.Event)
		Offered() []sharing.DeviceID
	}
	Records   *checkpoint.Store
	Pods      *cluster.Pods
	Devices   driver.Driver
	Processes HostProcesses
	Runtime   cdi.Runtime
	Observer  OversightObserver
}

// OversightObserver is told what an Oversight finds. It must not block.
type OversightObserver interface {
	AuditObserver
	// Unenforced is told of a container that was ended because it had nothing of what it was given.
	Unenforced(pod *corev1.Pod, container, why string)
	// Unlimited is told of a container with a process that nothing limits, once.
	Unlimited(pod *corev1.Pod, container, what string)
}

// NewOversight returns an oversight that has seen nothing yet.
func NewOversight(c OversightConfig) *Oversight {
	return &Oversight{
		Witness: NewWitness(WitnessConfig{Pods: c.Pods, Processes: c.Processes, Runtime: c.Runtime, Agent: c.Agent, Ended: c.Observer.Unenforced}),
		guard: NewGuard(GuardConfig{
			Records: c.Records, Pods: c.Pods, Devices: c.Devices, Programs: c.Processes, Found: c.Observer.Unlimited, OnlyTells: c.OnlyTells,
		}),
		Audit: NewAudit(AuditConfig{
			AuditOptions: c.AuditOptions, Records: c.Records, Pods: c.Pods, Offered: c.Agent, Devices: c.Devices, Processes: c.Processes, Observer: c.Observer,
		}),
		bypass: &bypassWatch{runtime: c.Runtime, agent: c.Agent},
	}
}

// Run looks until ctx ends.
func (o *Oversight) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return o.Witness.Run(ctx) })
	group.Go(func() error { return o.guard.Run(ctx) })
	group.Go(func() error { return o.Audit.Run(ctx) })
	group.Go(func() error { return o.bypass.run(ctx, lookAtRuntime) })
	return group.Wait()
}

// lookEvery looks again and again until ctx ends. A look that is under way then is not waited for.
func lookEvery(ctx context.Context, pause time.Duration, look func()) error {
	go func() {
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				look()
			}
		}
	}()
	<-ctx.Done()
	return nil
}
