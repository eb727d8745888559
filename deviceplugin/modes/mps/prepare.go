// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"deviceshare/deviceplugin/driver"
	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/limits"
	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// Config is what a Preparer works with. Flags and Restarted may be
// left out. Paths are absolute and mean the same to the container runtime.
type Config struct {
	Files host.Files
	// Root is the directory of the preparer's records.
	Root string
	// Directories is the parent of the directories that daemons share with clients.
	Directories string
	// Library is libvgpu.so, which holds the memory of all processes of a
	// container.
	Library  string
	Control  Control
	Hardware driver.ComputeModes
	Space    Space
	// Shm is how much a pod can have in /dev/shm that does not say, and ShmMost how much all
	// pods of the node together can.
	Shm, ShmMost sharing.Bytes
	Tenants
	// Partitions reserves multiprocessors for containers, where they are otherwise
	// held to a percentage. The control program must know static partitions.
	Partitions bool
	// Restarted is told about a daemon that died, after it was started again or
	// could not be. It is called for several devices at once.
	Restarted func(Restart)
}

// Tenants says which containers share a device.
type Tenants struct {
	// MultiUser lets clients of all users share a device, as clients of root's
	// server. Their user ids then no longer separate them from each other there.
	MultiUser bool
	// MultiNamespace lets pods of several namespaces share a device, and RootUser lets clients
	// run as root.
	MultiNamespace, RootUser bool
	// ReadOnlyPipe mounts the directory in which clients find their daemon read only.
	ReadOnlyPipe bool
}

// Preparer implements modes.Switcher. Its state is on the host; in memory it only has
// locks.
type Preparer struct {
	cfg    Config
	limits *limits.Writer
	locks  sync.Map // sharing.DeviceID -> *sync.Mutex
	// endings are how daemons ended of which nobody was told yet.
	endings sync.Map // sharing.DeviceID -> string
}

// New returns a preparer.
func New(cfg Config) *Preparer {
	return &Preparer{cfg: cfg, limits: limits.New(cfg.Files, cfg.Space, cfg.Root, cfg.Library)}
}

// Mode implements modes.Preparer.
func (p *Preparer) Mode() sharing.Mode { return sharing.MPS }

// lockDevice locks a device and returns the function that unlocks it.
func (p *Preparer) lockDevice(id sharing.DeviceID) (unlock func()) {
	l, _ := p.locks.LoadOrStore(id, &sync.Mutex{})
	mu := l.(*sync.Mutex)
	mu.Lock()
	return mu.Unlock
}

// Prepare implements modes.Preparer.
func (p *Preparer) Prepare(ctx context.Context, c modes.Claim) (modes.Injection, error) {
	if err := c.Check(p.Mode()); err != nil {
		return modes.Injection{}, err
	}
	if len(c.Devices) > 1 {
		return modes.Injection{}, fmt.Errorf("claim %s: it has %d devices, and a container in mode mps can have one: "+
			"a process talks to one MPS control daemon and each device has its own; ask for vgpu-number: 1, or for another mode", c.ID, len(c.Devices))
	}
	if strings.Contains(string(c.Owner), "_") {
		return modes.Injection{}, fmt.Errorf("claim %s: the owner %q holds an underscore, which ends the owner in a directory's name", c.ID, c.Owner)
	}
	share := &c.Devices[0].Share
	if !share.Whole && (share.Memory < sharing.MiB || share.Cores < 0) {
		return modes.Injection{}, fmt.Errorf("claim %s: the share of device %s has no limits and is no whole device", c.ID, share.Device)
	}
	in, err := p.prepareClaim(ctx, &c)
	if err != nil {
		return modes.Injection{}, fmt.Errorf("prepare claim %s: %w", c.ID, err)
	}
	return in, nil
}

func (p *Preparer) prepareClaim(ctx context.Context, c *modes.Claim) (modes.Injection, error) {
	dev := &c.Devices[0].Device
	partition, died, err := p.admitContainer(ctx, c)
	if died {
		p.tellRestart(Restart{Device: dev.ID, Err: err})
	}
	if err != nil {
		return modes.Injection{}, err
	}
	d := p.daemonFor(dev.ID)
	in := modes.Injection{
		Devices: []sharing.DeviceID{dev.ID},
		Env:     clientEnvironment(d, &c.Devices[0].Share, partition),
		Mounts:  []modes.Mount{{Host: d.Pipe(), Container: d.Pipe(), ReadOnly: p.cfg.ReadOnlyPipe}, {Host: d.Shm(), Container: "/dev/shm"}},
	}
	if c.Devices[0].Share.Whole {
		return in, nil
	}
	limits, err := p.limits.Write(ctx, memoryOnly(c))
	if err != nil {
		return modes.Injection{}, err
	}
	in.Mounts, in.Env = append(in.Mounts, limits.Mounts...), append(in.Env, limits.Env...)
	in.StandIns, in.Hooks = limits.StandIns, limits.Hooks
	slices.SortFunc(in.Env, func(a, b modes.Variable) int { return strings.Compare(a.Name, b.Name) })
	return in, nil
}

// admitContainer checks that the device serves the container beside those that are there, brings
// the device into the mode, and makes sure that its daemon runs.
func (p *Preparer) admitContainer(ctx context.Context, c *modes.Claim) (partition string, died bool, err error) {
	dev := &c.Devices[0].Device
	defer p.lockDevice(dev.ID)()
	there, err := p.claimsOnDevice(dev.ID)
	if err != nil {
		return "", false, err
	}
	if err := p.requireTenant(claimOf(c), there); err != nil {
		return "", false, fmt.Errorf("device %s: %w", dev.ID, err)
	}
	if len(there) == 0 {
		// Left over from a crash.
		if err := p.emptyShm(dev.ID, claimOf(c)); err != nil {
			return "", false, err
		}
	}
	if err := p.writeClaimRecord(c, recordedPartition(c, there)); err != nil {
		return "", false, err
	}
	r, err := p.enterMode(dev)
	if err != nil {
		return "", false, err
	}
	if !r.Wanted {
		r.Wanted = true
		if err := p.writeDeviceRecord(dev.ID, r); err != nil {
			return "", false, err
		}
	}
	d := p.daemonFor(dev.ID)
	died, err = p.ensureDaemon(ctx, d, r)
	if err != nil || !p.cfg.Partitions {
		return "", died, err
	}
	partition, err = p.assignChunksInTime(ctx, d, c)
	return partition, died, err
}

// recordedPartition is the partition a container is known to have, "" without one.
func recordedPartition(c *modes.Claim, there []claimRecord) string {
	for _, o := range there {
		if o.owner == c.Owner && o.Container == c.Container {
			return o.Partition
		}
	}
	return ""
}

// clientEnvironment is what makes a program in the container a client with limits. They
// are the ordinals of the container's devices, of which there is one. MiB are
// rounded down so that a limit never promises more.
func clientEnvironment(d Daemon, s *sharing.Share, partition string) []modes.Variable {
	env := []modes.Variable{{Name: "CUDA_MPS_PIPE_DIRECTORY", Value: d.Pipe()}}
	if partition != "" {
		env = append(env, modes.Variable{Name: "CUDA_MPS_SM_PARTITION", Value: partition})
	}
	if s.Whole {
		return env
	}
	env = append(env, modes.Variable{Name: "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", Value: "0=" + strconv.FormatInt(int64(s.Memory/sharing.MiB), 10) + "M"})
	if partition == "" && s.Cores > 0 && s.Cores < 100 {
		env = append(env, modes.Variable{Name: "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", Value: strconv.Itoa(int(s.Cores))})
	}
	return env
}

// memoryOnly is the claim as libvgpu.so shall enforce it: memory, over all
// processes of the container. Compute is MPS's.
func memoryOnly(c *modes.Claim) *modes.Claim {
	out := *c
	out.Policy = "disable"
	out.Devices = slices.Clone(c.Devices)
	for i := range out.Devices {
		out.Devices[i].Share.Cores = 0
	}
	return &out
}

// Unprepare implements modes.Preparer. The daemon keeps running for the next container
// until the device leaves the mode. Files that the last container of a device left in
// /dev/shm are removed.
func (p *Preparer) Unprepare(ctx context.Context, o sharing.Owner) error {
	// Records that cannot be read are removed too.
	had, _ := p.claimsOf(func(x sharing.Owner) bool { return x == o })
	if err := p.giveBack(ctx, o); err != nil {
		return fmt.Errorf("unprepare owner %s: %w", o, err)
	}
	if err := p.limits.Remove(o); err != nil {
		return err
	}
	var failed []error
	for _, c := range had {
		failed = append(failed, p.emptyUnusedShm(c.Device))
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("unprepare owner %s: %w", o, err)
	}
	return nil
}

// Abandon implements modes.Abandoner. Daemons of devices that pods hold keep their directories.
func (p *Preparer) Abandon() error { return p.limits.Abandon() }

// Owners lists whoever has something prepared.
func (p *Preparer) Owners() ([]sharing.Owner, error) { return p.limits.Owners() }
