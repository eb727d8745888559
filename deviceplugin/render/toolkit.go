// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"slices"
	"sync"

	gonvml "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/sharing"
)

// ToolkitConfig is where NVIDIA's container toolkit finds the driver.
type ToolkitConfig struct {
	DriverRoot string // "/" unless the driver is in a container
	DevRoot    string
	HookPath   string // nvidia-cdi-hook, as the runtime sees it
	Library    gonvml.Interface
}

// Toolkit is the base for real devices: NVIDIA's container toolkit knows which
// libraries, nodes and hooks a driver version needs.
type Toolkit struct {
	cfg ToolkitConfig

	mu      sync.Mutex // the toolkit opens and closes the driver around each call
	common  *cdi.ContainerEdits
	devices map[sharing.DeviceID]*cdi.ContainerEdits
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
	if err := t.ask(devices); err != nil {
		return nil, err
	}
	edits := &cdi.ContainerEdits{ContainerEdits: &specs.ContainerEdits{}}
	edits.Append(t.common)
	for _, id := range devices {
		edits.Append(t.devices[id])
	}
	return edits.ContainerEdits, nil
}

// ask fills in what is not known yet. The caller holds the lock.
func (t *Toolkit) ask(devices []sharing.DeviceID) error {
	unknown := slices.DeleteFunc(slices.Clone(devices), func(id sharing.DeviceID) bool { return t.devices[id] != nil })
	if t.common != nil && len(unknown) == 0 {
		return nil
	}
	lib, err := nvcdi.New(
		nvcdi.WithNvmlLib(t.cfg.Library),
		nvcdi.WithDriverRoot(t.cfg.DriverRoot),
		nvcdi.WithDevRoot(t.cfg.DevRoot),
		nvcdi.WithNVIDIACDIHookPath(t.cfg.HookPath),
		nvcdi.WithMode(nvcdi.ModeNvml),
		nvcdi.WithVendor(vendor), nvcdi.WithClass(class),
	)
	if err != nil {
		return fmt.Errorf("start the container toolkit: %w", err)
	}
	if t.common == nil {
		if t.common, err = lib.GetCommonEdits(); err != nil {
			return fmt.Errorf("find the driver's files: %w", err)
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
		t.devices[id] = &cdi.ContainerEdits{ContainerEdits: &found[0].ContainerEdits}
	}
	return nil
}
