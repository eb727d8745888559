// SPDX-License-Identifier: Apache-2.0

// Package oversight looks at what runs on a node: whether containers have what they were given,
// whether limits hold them, and who uses devices without a share.
package oversight

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"deviceshare/deviceplugin/checkpoint"
	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/metrics/occupancy"
	"deviceshare/deviceplugin/modes"
	"deviceshare/deviceplugin/node"
	"deviceshare/sharing"
)

// Config is what an Oversight works with. All fields but Exempt and OnlyTells are needed.
type Config struct {
	// Exempt is who may use devices without a share.
	Exempt Exemptions
	// OnlyTells leaves containers alone that nothing limits.
	OnlyTells bool
	Agent     loop
	Records   interface{ All() []checkpoint.Record }
	Pods      occupancy.PodSource
	Devices   interface {
		// MemoryByProcess lists those of one device, or is driver.ErrUnsupported.
		MemoryByProcess(id sharing.DeviceID) ([]driver.Process, error)
	}
	Runtime  containerRuntime
	Observer Observer

	processes processes // set by New
}

// loop is what knows the devices and takes in what is found.
type loop interface {
	Send(node.Event)
	// Offered lists the devices that pods can be given.
	Offered() []sharing.DeviceID
}

// containerRuntime says how the node's container runtime is set.
type containerRuntime interface {
	// Ignores says why it starts containers without what our specifications bring, "" if it does
	// not, and an error if that cannot be known.
	Ignores(ctx context.Context) (why string, err error)
	// GivesUnasked says why a container gets devices unasked, if it does.
	GivesUnasked(ctx context.Context) (why string, does bool, err error)
}

// processes are those of the host. An error says that one has ended or cannot be looked at.
type processes interface {
	// pidsOf lists the processes of a container, by the id that its runtime gave it.
	pidsOf(container string) ([]int, error)
	// mountPoints are those that a process sees.
	mountPoints(pid int) ([]string, error)
	// identifyProcess says which process has a number, and in which control groups it is.
	identifyProcess(pid int) (occupancy.Process, []procfs.Cgroup, error)
	// readProgram is identifyProcess with the files that the process has mapped.
	readProgram(pid int) (program, error)
	// killAll kills every process of a container.
	killAll(container string) error
}

// Observer is told what an Oversight finds. It must not block.
type Observer interface {
	// Unenforced is told of a container that was ended because it had nothing of what it was given.
	Unenforced(pod *corev1.Pod, container, why string)
	// Unlimited is told of a container with a process that nothing limits, once.
	Unlimited(pod *corev1.Pod, container, what string)
	// Stranger is told once of each process that uses a device without a share. pod is nil for a
	// program of the host and for a pod that this node does not know.
	Stranger(pod *corev1.Pod, use occupancy.Use)
}

// Oversight has a witness for what containers got, a guard over their limits, an audit of who uses
// devices without a share, and a watch over settings of the node that let anybody do so.
type Oversight struct {
	hostProcesses
	witness *witness
	guard   *guard
	audit   *audit
	bypass  *bypassWatch
}

// New returns an oversight that has seen nothing yet. It reads /proc, where this process must see
// the host's PIDs.
func New(c Config) (*Oversight, error) {
	host, err := newHostProcesses(procfs.DefaultMountPoint)
	if err != nil {
		return nil, err
	}
	c.processes = host
	return &Oversight{
		hostProcesses: host, witness: newWitness(&c), guard: newGuard(&c), audit: newAudit(&c), bypass: &bypassWatch{&c},
	}, nil
}

// lookAtProcesses is the time between looks at who uses devices.
const lookAtProcesses = 4 * time.Second

// Prepared expects a container to start with what it is given.
func (o *Oversight) Prepared(pod *corev1.Pod, c *modes.Claim) { o.witness.expectContainer(pod, c) }

// AskRuntime asks the container runtime how it is set, as Run does again and again.
func (o *Oversight) AskRuntime(ctx context.Context) { o.witness.askRuntime(ctx) }

// Uses are the uses of devices without a share that were told about and were there at the last
// look, in no order.
func (o *Oversight) Uses() []occupancy.Use {
	o.audit.mu.Lock()
	defer o.audit.mu.Unlock()
	return slices.Clone(o.audit.uses)
}

// Run looks until ctx ends.
func (o *Oversight) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return o.witness.watchContainers(ctx) })
	group.Go(func() error { return lookEvery(ctx, lookAtProcesses, o.guard.lookAll) })
	group.Go(func() error { return lookEvery(ctx, lookAtProcesses, o.audit.lookAll) })
	group.Go(func() error { return o.bypass.run(ctx, lookAtRuntime) })
	return group.Wait()
}

// lookEvery looks again and again until ctx ends. A look that is under way then is not waited for:
// the driver may not answer.
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
