// SPDX-License-Identifier: Apache-2.0

package hamicore

import (
	"context"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/limits"
	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// Preparer implements modes.Preparer. It keeps no state in memory: everything
// it knows is on the host.
type Preparer struct{ limits *limits.Writer }

// New returns a preparer that keeps its files below root and takes libvgpu.so
// from the file library. The root is an absolute path that means the same to the
// container runtime.
func New(files host.Files, space host.Space, root, library string) *Preparer {
	return &Preparer{limits: limits.New(files, space, root, library)}
}

// Mode implements modes.Preparer.
func (p *Preparer) Mode() sharing.Mode { return sharing.HAMiCore }

// Prepare implements modes.Preparer.
func (p *Preparer) Prepare(ctx context.Context, c modes.Claim) (modes.Injection, error) {
	if err := c.Check(p.Mode()); err != nil {
		return modes.Injection{}, err
	}
	devices, whole := make([]sharing.DeviceID, 0, len(c.Devices)), true
	for i := range c.Devices {
		devices = append(devices, c.Devices[i].Device.ID)
		whole = whole && c.Devices[i].Share.Whole
	}
	if whole {
		return modes.Injection{Devices: devices}, nil
	}
	in, err := p.limits.Write(ctx, &c)
	if err != nil {
		return modes.Injection{}, err
	}
	in.Devices = devices
	return in, nil
}

// Unprepare implements modes.Preparer.
func (p *Preparer) Unprepare(_ context.Context, o sharing.Owner) error { return p.limits.Remove(o) }

// Abandon implements modes.Abandoner.
func (p *Preparer) Abandon() error { return p.limits.Abandon() }

// Owners lists whoever has something prepared, so that a restarted device plugin
// can remove what a lost checkpoint no longer names.
func (p *Preparer) Owners() ([]sharing.Owner, error) { return p.limits.Owners() }
