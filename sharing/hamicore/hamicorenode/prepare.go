// SPDX-License-Identifier: Apache-2.0

package hamicorenode

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"deviceshare/sharing"
	"deviceshare/sharing/nodeapi"
	"deviceshare/sharing/nodeapi/hostnode"
)

// Preparer implements nodeapi.Preparer. It keeps no state in memory: everything
// it knows is on the host.
type Preparer struct {
	files   hostnode.Files
	root    string
	library string
}

// New returns a preparer that keeps its files below root and takes libvgpu.so
// from the file library. Both are absolute paths that mean the same to the
// container runtime.
func New(files hostnode.Files, root, library string) *Preparer {
	return &Preparer{files: files, root: root, library: library}
}

// Mode implements nodeapi.Preparer.
func (p *Preparer) Mode() sharing.Mode { return sharing.HAMiCore }

// Prepare implements nodeapi.Preparer.
func (p *Preparer) Prepare(ctx context.Context, c nodeapi.Claim) (nodeapi.Injection, error) {
	if err := c.Check(p.Mode()); err != nil {
		return nodeapi.Injection{}, err
	}
	if strings.Contains(string(c.Owner), "_") {
		return nodeapi.Injection{}, fmt.Errorf("claim %s: the owner %q holds an underscore, which ends the owner in a directory's name", c.ID, c.Owner)
	}
	in := nodeapi.Injection{Devices: make([]sharing.DeviceID, 0, len(c.Devices))}
	whole := true
	for i := range c.Devices {
		in.Devices = append(in.Devices, c.Devices[i].Device.ID)
		whole = whole && c.Devices[i].Share.Whole
	}
	if whole {
		return in, nil
	}
	text, err := limits(&c)
	if err != nil {
		return nodeapi.Injection{}, err
	}
	if err := ctx.Err(); err != nil {
		return nodeapi.Injection{}, fmt.Errorf("prepare claim %s: %w", c.ID, err)
	}
	in.Mounts, err = p.install(&c, text)
	if err != nil {
		return nodeapi.Injection{}, fmt.Errorf("prepare claim %s: %w", c.ID, err)
	}
	in.Env = environment(&c)
	return in, nil
}

// install makes every file of the claim and returns the mounts.
func (p *Preparer) install(c *nodeapi.Claim, text string) ([]nodeapi.Mount, error) {
	library, err := p.installLibrary()
	if err != nil {
		return nil, err
	}
	preload := filepath.Join(p.root, "ld.so.preload")
	if err := p.ensure(preload, []byte(libraryInside+"\n")); err != nil {
		return nil, err
	}
	dir := filepath.Join(p.containers(), directory(c.Owner, c.Container))
	shared, file := filepath.Join(dir, "vgpu"), filepath.Join(dir, "limits")
	if err := p.files.MakeDir(dir, 0o700); err != nil {
		return nil, err
	}
	// Sticky, as /tmp: any user may make the region, none may remove another's.
	if err := p.files.MakeDir(shared, 0o777|fs.ModeSticky); err != nil {
		return nil, err
	}
	if err := p.ensure(file, []byte(text)); err != nil {
		return nil, err
	}
	return []nodeapi.Mount{
		{Host: library, Container: libraryInside, ReadOnly: true},
		{Host: file, Container: limitsInside, ReadOnly: true},
		{Host: shared, Container: sharedInside},
		{Host: preload, Container: preloadInside, ReadOnly: true},
	}, nil
}

// installLibrary copies libvgpu.so to a name made of its content.
func (p *Preparer) installLibrary() (string, error) {
	content, err := p.files.Read(p.library)
	if err != nil {
		return "", fmt.Errorf("the interception library is missing, nothing would enforce the limits: %w", err)
	}
	sum := sha256.Sum256(content)
	dir := filepath.Join(p.root, "lib")
	if err := p.files.MakeDir(dir, 0o755); err != nil {
		return "", err
	}
	target := filepath.Join(dir, "libvgpu-"+hex.EncodeToString(sum[:8])+".so")
	return target, p.ensure(target, content)
}

// ensure writes a world-readable file unless it has the content already.
func (p *Preparer) ensure(path string, content []byte) error {
	have, err := p.files.Read(path)
	if err == nil && bytes.Equal(have, content) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return p.files.Write(path, content, 0o444)
}

// Unprepare implements nodeapi.Preparer.
func (p *Preparer) Unprepare(_ context.Context, o sharing.Owner) error {
	names, err := p.files.List(p.containers())
	if err != nil {
		return fmt.Errorf("unprepare owner %s: %w", o, err)
	}
	var failed []error
	for _, name := range names {
		if owner, _, ok := strings.Cut(name, "_"); ok && owner == string(o) {
			failed = append(failed, p.files.Remove(filepath.Join(p.containers(), name)))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("unprepare owner %s: %w", o, err)
	}
	return nil
}

// Owners lists whoever has something prepared, so that a restarted device plugin
// can remove what a lost checkpoint no longer names.
func (p *Preparer) Owners() ([]sharing.Owner, error) {
	names, err := p.files.List(p.containers())
	if err != nil {
		return nil, fmt.Errorf("list prepared owners: %w", err)
	}
	var owners []sharing.Owner
	for _, name := range names {
		if owner, _, ok := strings.Cut(name, "_"); ok {
			owners = append(owners, sharing.Owner(owner))
		}
	}
	return owners, nil
}

func (p *Preparer) containers() string { return filepath.Join(p.root, "containers") }

// directory names a container's directory as upstream's monitor expects it. A pod
// UID holds no underscore, so the name can be taken apart again.
func directory(o sharing.Owner, container string) string { return string(o) + "_" + container }
