// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/transform/root"
	"k8s.io/klog/v2"
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
	Library  gonvml.Interface
	// MIG finds the nodes of MIG devices: the toolkit leaves out nodes that it does
	// not see, and without them the container would find no device.
	MIG Capabilities
}

// Toolkit is the base for real devices: NVIDIA's container toolkit knows which
// libraries, nodes and hooks a driver version needs.
type Toolkit struct {
	cfg  ToolkitConfig
	find func(common bool, devices []sharing.DeviceID) (answers, error)
	// asking holds a token while somebody asks the toolkit, which opens and closes
	// the driver around each call. A driver that hangs keeps it: what was learned
	// before is served without it, and nobody waits for it for ever.
	asking chan struct{}

	mu    sync.Mutex // held for moments only
	known answers
	era   int // counts Forget
}

// answers is what the toolkit said.
type answers struct {
	common  *cdi.ContainerEdits
	devices map[sharing.DeviceID]*cdi.ContainerEdits
}

// NewToolkit returns a base that asks the toolkit when it is first used. Answers
// are kept: asking takes the driver up to a second, and many pods start at once.
func NewToolkit(cfg ToolkitConfig) *Toolkit {
	t := &Toolkit{cfg: cfg, asking: make(chan struct{}, 1), known: answers{devices: map[sharing.DeviceID]*cdi.ContainerEdits{}}}
	t.find = t.ask
	return t
}

// Forget makes the next call ask anew, as after the driver was replaced. It does
// not wait for an answer that is under way; that one is not kept.
func (t *Toolkit) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.era++
	t.known = answers{devices: map[sharing.DeviceID]*cdi.ContainerEdits{}}
}

// Edits implements Base.
func (t *Toolkit) Edits(ctx context.Context, devices []sharing.DeviceID) (*specs.ContainerEdits, error) {
	known, unknown, era := t.recall(devices)
	if known.common == nil || len(unknown) > 0 {
		select {
		case t.asking <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the driver, which has not answered an earlier question yet: %w", ctx.Err())
		}
		defer func() { <-t.asking }()
		known, unknown, era = t.recall(devices) // somebody may have asked meanwhile
		found, err := t.find(known.common == nil, unknown)
		if err != nil {
			return nil, err
		}
		t.keep(found, era)
		known.common = cmp.Or(known.common, found.common)
		maps.Copy(known.devices, found.devices)
	}
	edits := &cdi.ContainerEdits{ContainerEdits: &specs.ContainerEdits{}}
	edits.Append(known.common)
	for _, id := range devices {
		edits.Append(known.devices[id])
	}
	return edits.ContainerEdits, nil
}

// recall is what is known already, a copy, which devices are not, and since which
// Forget.
func (t *Toolkit) recall(devices []sharing.DeviceID) (known answers, unknown []sharing.DeviceID, era int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known = answers{common: t.known.common, devices: maps.Clone(t.known.devices)}
	unknown = slices.DeleteFunc(slices.Clone(devices), func(id sharing.DeviceID) bool { return known.devices[id] != nil })
	return known, unknown, t.era
}

// keep remembers answers unless they were made for forgetting since. MIG devices
// come and go and are not remembered.
func (t *Toolkit) keep(found answers, era int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if era != t.era {
		return
	}
	t.known.common = cmp.Or(t.known.common, found.common)
	for id, edits := range found.devices {
		if !partition(id) {
			t.known.devices[id] = edits
		}
	}
}

// ask asks the toolkit about devices, and about what belongs to none if common. The
// caller holds the token.
func (t *Toolkit) ask(common bool, devices []sharing.DeviceID) (answers, error) {
	found := answers{devices: map[sharing.DeviceID]*cdi.ContainerEdits{}}
	if !common && len(devices) == 0 {
		return found, nil
	}
	lib, err := nvcdi.New(
		nvcdi.WithLogger(chatter{}),
		nvcdi.WithNvmlLib(t.cfg.Library),
		nvcdi.WithDriverRoot(cmp.Or(t.cfg.SeenRoot, t.cfg.DriverRoot)),
		nvcdi.WithDevRoot(t.cfg.DevRoot),
		nvcdi.WithNVIDIACDIHookPath(t.cfg.HookPath),
		nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithVendor(vendor), nvcdi.WithClass(class),
	)
	if err != nil {
		return found, fmt.Errorf("start the container toolkit: %w", err)
	}
	if common {
		edits, err := lib.GetCommonEdits()
		if err != nil {
			return found, fmt.Errorf("find the driver's files: %w", err)
		}
		if found.common, err = t.asHostSees(edits.ContainerEdits); err != nil {
			return found, err
		}
	}
	for _, id := range devices {
		if found.devices[id], err = t.askFor(lib, id); err != nil {
			return found, fmt.Errorf("find the nodes of device %s: %w", id, err)
		}
	}
	return found, nil
}

// askFor asks the toolkit about one device.
func (t *Toolkit) askFor(lib nvcdi.Interface, id sharing.DeviceID) (*cdi.ContainerEdits, error) {
	found, err := lib.GetDeviceSpecsByID(string(id))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, errors.New("the container toolkit knows none")
	}
	// Every name of one device has the same edits.
	edits, err := t.asHostSees(&found[0].ContainerEdits)
	if err != nil {
		return nil, err
	}
	return edits, t.open(id, edits)
}

// open adds the capability nodes of a MIG device that the toolkit did not see.
func (t *Toolkit) open(id sharing.DeviceID, edits *cdi.ContainerEdits) error {
	if !partition(id) {
		return nil
	}
	m, err := t.cfg.MIG.Locate(string(id))
	if err != nil {
		return err
	}
	nodes, err := t.cfg.MIG.nodes(m)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		there := func(have *specs.DeviceNode) bool { return have.Path == node.Path }
		if !slices.ContainsFunc(edits.DeviceNodes, there) {
			edits.DeviceNodes = append(edits.DeviceNodes, node)
		}
	}
	return nil
}

// asHostSees replaces paths that this process sees by those the container runtime
// sees.
func (t *Toolkit) asHostSees(edits *specs.ContainerEdits) (*cdi.ContainerEdits, error) {
	spec := &specs.Spec{ContainerEdits: *edits}
	change := root.New(
		root.WithRoot(cmp.Or(t.cfg.SeenRoot, t.cfg.DriverRoot)), root.WithTargetRoot(t.cfg.DriverRoot), root.WithRelativeTo("host"))
	if err := change.Transform(spec); err != nil {
		return nil, fmt.Errorf("translate the driver's paths to the host's: %w", err)
	}
	return &cdi.ContainerEdits{ContainerEdits: &spec.ContainerEdits}, nil
}

// chatter is the toolkit's log: it tells of every file it looks for, found or
// not, which matters only to somebody who looks for one.
type chatter struct{}

func (chatter) Errorf(format string, args ...any)   { klog.ErrorS(nil, fmt.Sprintf(format, args...)) }
func (chatter) Warning(args ...any)                 { klog.V(2).InfoS(fmt.Sprint(args...)) }
func (chatter) Warningf(format string, args ...any) { klog.V(2).InfoS(fmt.Sprintf(format, args...)) }
func (chatter) Info(args ...any)                    { klog.V(3).InfoS(fmt.Sprint(args...)) }
func (chatter) Infof(format string, args ...any)    { klog.V(3).InfoS(fmt.Sprintf(format, args...)) }
func (chatter) Debugf(format string, args ...any)   { klog.V(4).InfoS(fmt.Sprintf(format, args...)) }
func (chatter) Tracef(format string, args ...any)   { klog.V(5).InfoS(fmt.Sprintf(format, args...)) }
