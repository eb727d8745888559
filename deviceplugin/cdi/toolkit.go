// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/sharing"
)

// ToolkitConfig is where NVIDIA's container toolkit finds the driver.
type ToolkitConfig struct {
	// DriverRoot is the root of the driver installation on the host: "/", unless
	// the driver itself comes in a container.
	DriverRoot string
	// SeenRoot is where this process sees that root; "" if in the same place.
	SeenRoot string
	// DevRoot is the directory that holds dev, as this process and the host see it.
	DevRoot string
	// HookPath is nvidia-cdi-hook, as the container runtime sees it.
	HookPath string
	Library  Library
	// MIG finds the nodes of MIG devices: the toolkit leaves out nodes that it does
	// not see, and without them the container would find no device.
	MIG Capabilities
}

// Library gives the binding of the driver's library.
type Library interface {
	// Library is another one after the driver was replaced.
	Library() gonvml.Interface
}

// Toolkit is the base for real devices: NVIDIA's container toolkit knows which
// libraries, nodes and hooks a driver version needs.
type Toolkit struct {
	source editSource
	// asking holds a token while somebody asks the toolkit, which opens and closes
	// the driver around each call. A driver that hangs keeps it: what was learned
	// before is served without it, and nobody waits for it for ever.
	asking chan struct{}

	mu    sync.Mutex // held for moments only
	known answers
	era   int // counts Forget
}

// editSource knows the edits of devices, and those that belong to none if common. One
// question is asked at a time; it may take for ever.
type editSource interface {
	findEdits(common bool, devices []sharing.DeviceID) (answers, error)
}

// answers is what the toolkit said.
type answers struct {
	common  *cdi.ContainerEdits
	devices map[sharing.DeviceID]*cdi.ContainerEdits
}

// newToolkit returns a base that asks the toolkit when it is first used. Answers
// are kept: asking takes the driver up to a second, and many pods start at once.
func newToolkit(source editSource) *Toolkit {
	return &Toolkit{source: source, asking: make(chan struct{}, 1), known: answers{devices: map[sharing.DeviceID]*cdi.ContainerEdits{}}}
}

// Forget makes the next call ask anew, as after the driver was replaced. It does
// not wait for an answer that is under way; that one is not kept.
func (t *Toolkit) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.era++
	t.known = answers{devices: map[sharing.DeviceID]*cdi.ContainerEdits{}}
}

// Common implements Base.
func (t *Toolkit) Common(ctx context.Context) (*specs.ContainerEdits, error) {
	known, err := t.ensureKnown(ctx, nil)
	if err != nil {
		return nil, err
	}
	return known.common.ContainerEdits, nil
}

// Edits implements Base.
func (t *Toolkit) Edits(ctx context.Context, devices []sharing.DeviceID) (*specs.ContainerEdits, error) {
	known, err := t.ensureKnown(ctx, devices)
	if err != nil {
		return nil, err
	}
	edits := &cdi.ContainerEdits{ContainerEdits: &specs.ContainerEdits{}}
	for _, id := range devices {
		edits.Append(known.devices[id])
	}
	return edits.ContainerEdits, nil
}

// ensureKnown is what is known of the devices and of what is common to all, after the toolkit was
// asked for what is missing.
func (t *Toolkit) ensureKnown(ctx context.Context, devices []sharing.DeviceID) (answers, error) {
	known, unknown, era := t.snapshotKnown(devices)
	if known.common != nil && len(unknown) == 0 {
		return known, nil
	}
	select {
	case t.asking <- struct{}{}:
	case <-ctx.Done():
		return known, fmt.Errorf("wait for the driver, which has not answered an earlier question yet: %w", ctx.Err())
	}
	defer func() { <-t.asking }()
	known, unknown, era = t.snapshotKnown(devices) // somebody may have asked meanwhile
	found, err := t.source.findEdits(known.common == nil, unknown)
	if err != nil {
		return known, err
	}
	t.cacheAnswers(found, era)
	known.common = cmp.Or(known.common, found.common)
	maps.Copy(known.devices, found.devices)
	return known, nil
}

// snapshotKnown is what is known already, a copy, which devices are not, and since which
// Forget.
func (t *Toolkit) snapshotKnown(devices []sharing.DeviceID) (known answers, unknown []sharing.DeviceID, era int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known = answers{common: t.known.common, devices: maps.Clone(t.known.devices)}
	unknown = slices.DeleteFunc(slices.Clone(devices), func(id sharing.DeviceID) bool { return known.devices[id] != nil })
	return known, unknown, t.era
}

// cacheAnswers remembers answers unless they were made for forgetting since. MIG devices
// come and go and are not remembered.
func (t *Toolkit) cacheAnswers(found answers, era int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if era != t.era {
		return
	}
	t.known.common = cmp.Or(t.known.common, found.common)
	for id, edits := range found.devices {
		if !isMIGDevice(id) {
			t.known.devices[id] = edits
		}
	}
}
