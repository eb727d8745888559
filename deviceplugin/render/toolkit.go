// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
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
	cfg ToolkitConfig

	mu      sync.Mutex // the toolkit opens and closes the driver around each call
	common  *cdi.ContainerEdits
	devices map[sharing.DeviceID]*cdi.ContainerEdits // whole ones: MIG devices come and go
}

// NewToolkit returns a base that asks the toolkit when it is first used. Answers
// are kept: asking takes the driver up to a second, and many pods start at once.
func NewToolkit(cfg ToolkitConfig) *Toolkit {
	return &Toolkit{cfg: cfg, devices: map[sharing.DeviceID]*cdi.ContainerEdits{}}
}

// Forget makes the next call ask anew, as after the driver was replaced.
func (t *Toolkit) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.common = nil
	clear(t.devices)
}

// Edits implements Base.
func (t *Toolkit) Edits(devices []sharing.DeviceID) (*specs.ContainerEdits, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := maps.Clone(t.devices)
	if err := t.ask(devices, known); err != nil {
		return nil, err
	}
	edits := &cdi.ContainerEdits{ContainerEdits: &specs.ContainerEdits{}}
	edits.Append(t.common)
	for _, id := range devices {
		edits.Append(known[id])
		if !partition(id) {
			t.devices[id] = known[id]
		}
	}
	return edits.ContainerEdits, nil
}

// ask fills in what is not known yet. The caller holds the lock.
func (t *Toolkit) ask(devices []sharing.DeviceID, known map[sharing.DeviceID]*cdi.ContainerEdits) error {
	unknown := slices.DeleteFunc(slices.Clone(devices), func(id sharing.DeviceID) bool { return known[id] != nil })
	if t.common != nil && len(unknown) == 0 {
		return nil
	}
	seen := cmp.Or(t.cfg.SeenRoot, t.cfg.DriverRoot)
	lib, err := nvcdi.New(
		nvcdi.WithLogger(chatter{}),
		nvcdi.WithNvmlLib(t.cfg.Library),
		nvcdi.WithDriverRoot(seen),
		nvcdi.WithDevRoot(t.cfg.DevRoot),
		nvcdi.WithNVIDIACDIHookPath(t.cfg.HookPath),
		nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithVendor(vendor), nvcdi.WithClass(class),
	)
	if err != nil {
		return fmt.Errorf("start the container toolkit: %w", err)
	}
	if t.common == nil {
		common, err := lib.GetCommonEdits()
		if err != nil {
			return fmt.Errorf("find the driver's files: %w", err)
		}
		if t.common, err = t.asHostSees(common.ContainerEdits); err != nil {
			return err
		}
	}
	for _, id := range unknown {
		found, err := lib.GetDeviceSpecsByID(string(id))
		if err != nil {
			return fmt.Errorf("find the nodes of device %s: %w", id, err)
		}
		if len(found) == 0 {
			return fmt.Errorf("find the nodes of device %s: the container toolkit knows none", id)
		}
		// Every name of one device has the same edits.
		if known[id], err = t.asHostSees(&found[0].ContainerEdits); err != nil {
			return err
		}
		if err := t.open(id, known[id]); err != nil {
			return fmt.Errorf("find the nodes of device %s: %w", id, err)
		}
	}
	return nil
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
