// SPDX-License-Identifier: Apache-2.0

// Package pairs is the node half of the made-up mode of package pairs. A
// container gets its devices and a read-only file that says what it may use.
package pairs

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"deviceshare/deviceplugin/host"
	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
	"deviceshare/sharing/sharingtest/pairs"
)

// Preparer implements modes.Preparer. It keeps no state in memory: everything it
// knows is below root, in a directory per owner.
type Preparer struct {
	files host.Files
	root  string
}

// New returns a preparer that keeps its files below root, an absolute path that means
// the same to the container runtime.
func New(files host.Files, root string) *Preparer { return &Preparer{files: files, root: root} }

// Mode implements modes.Preparer.
func (*Preparer) Mode() sharing.Mode { return pairs.Mode }

// Prepare implements modes.Preparer.
func (p *Preparer) Prepare(_ context.Context, c modes.Claim) (modes.Injection, error) {
	if err := c.Check(p.Mode()); err != nil {
		return modes.Injection{}, err
	}
	in := modes.Injection{}
	var limits strings.Builder
	for i := range c.Devices {
		d := &c.Devices[i]
		in.Devices = append(in.Devices, d.Device.ID)
		fmt.Fprintf(&limits, "%s memory=%d cores=%d\n", d.Device.ID, d.Share.Memory, d.Share.Cores)
	}
	dir := filepath.Join(p.root, string(c.Owner))
	if err := p.files.MakeDir(dir, 0o700); err != nil {
		return modes.Injection{}, fmt.Errorf("prepare %s: %w", c.ID, err)
	}
	file := filepath.Join(dir, c.Container)
	if err := p.files.Write(file, []byte(limits.String()), 0o444); err != nil {
		return modes.Injection{}, fmt.Errorf("prepare %s: %w", c.ID, err)
	}
	in.Mounts = []modes.Mount{{Host: file, Container: "/etc/pairs/limits", ReadOnly: true}}
	return in, nil
}

// Unprepare implements modes.Preparer.
func (p *Preparer) Unprepare(_ context.Context, o sharing.Owner) error {
	if name := string(o); name == "" || name[0] == '.' || strings.Contains(name, "/") {
		return fmt.Errorf("unprepare owner %q: it cannot be a directory name", o)
	}
	if err := p.files.Remove(filepath.Join(p.root, string(o))); err != nil {
		return fmt.Errorf("unprepare owner %s: %w", o, err)
	}
	return nil
}
