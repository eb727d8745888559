// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi"
	"github.com/NVIDIA/nvidia-container-toolkit/pkg/nvcdi/transform/root"
	"k8s.io/klog/v2"
	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/sharing"
)

// nvidia is NVIDIA's container toolkit.
type nvidia struct{ cfg ToolkitConfig }

func (n *nvidia) findEdits(common bool, devices []sharing.DeviceID) (answers, error) {
	found := answers{devices: map[sharing.DeviceID]*cdi.ContainerEdits{}}
	if !common && len(devices) == 0 {
		return found, nil
	}
	lib, err := nvcdi.New(
		nvcdi.WithLogger(toolkitLog{}),
		nvcdi.WithNvmlLib(n.cfg.Library.Library()),
		nvcdi.WithDriverRoot(cmp.Or(n.cfg.SeenRoot, n.cfg.DriverRoot)),
		nvcdi.WithDevRoot(n.cfg.DevRoot),
		nvcdi.WithNVIDIACDIHookPath(n.cfg.HookPath),
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
		if found.common, err = n.asHostSees(edits.ContainerEdits); err != nil {
			return found, err
		}
	}
	for _, id := range devices {
		if found.devices[id], err = n.askFor(lib, id); err != nil {
			return found, fmt.Errorf("find the nodes of device %s: %w", id, err)
		}
	}
	return found, nil
}

func (n *nvidia) askFor(lib nvcdi.Interface, id sharing.DeviceID) (*cdi.ContainerEdits, error) {
	found, err := lib.GetDeviceSpecsByID(string(id))
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, errors.New("the container toolkit knows none")
	}
	// Every name of one device has the same edits.
	edits, err := n.asHostSees(&found[0].ContainerEdits)
	if err != nil {
		return nil, err
	}
	return edits, n.addCapabilityNodes(id, edits)
}

// addCapabilityNodes adds the capability nodes of a MIG device that the toolkit did not see.
func (n *nvidia) addCapabilityNodes(id sharing.DeviceID, edits *cdi.ContainerEdits) error {
	if !isMIGDevice(id) {
		return nil
	}
	m, err := n.cfg.MIG.Devices.MIGDevice(string(id))
	if err != nil {
		return err
	}
	nodes, err := n.cfg.MIG.instanceNodes(m)
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
func (n *nvidia) asHostSees(edits *specs.ContainerEdits) (*cdi.ContainerEdits, error) {
	spec := &specs.Spec{ContainerEdits: *edits}
	change := root.New(
		root.WithRoot(cmp.Or(n.cfg.SeenRoot, n.cfg.DriverRoot)), root.WithTargetRoot(n.cfg.DriverRoot), root.WithRelativeTo("host"))
	if err := change.Transform(spec); err != nil {
		return nil, fmt.Errorf("translate the driver's paths to the host's: %w", err)
	}
	return &cdi.ContainerEdits{ContainerEdits: &spec.ContainerEdits}, nil
}

// toolkitLog is the toolkit's log: it tells of every file it looks for, found or
// not, which matters only to somebody who looks for one.
type toolkitLog struct{}

func (toolkitLog) Errorf(format string, args ...any)   { klog.ErrorS(nil, fmt.Sprintf(format, args...)) }
func (toolkitLog) Warning(args ...any)                 { klog.V(2).InfoS(fmt.Sprint(args...)) }
func (toolkitLog) Warningf(format string, args ...any) { klog.V(2).InfoS(fmt.Sprintf(format, args...)) }
func (toolkitLog) Info(args ...any)                    { klog.V(3).InfoS(fmt.Sprint(args...)) }
func (toolkitLog) Infof(format string, args ...any)    { klog.V(3).InfoS(fmt.Sprintf(format, args...)) }
func (toolkitLog) Debugf(format string, args ...any)   { klog.V(4).InfoS(fmt.Sprintf(format, args...)) }
func (toolkitLog) Tracef(format string, args ...any)   { klog.V(5).InfoS(fmt.Sprintf(format, args...)) }
