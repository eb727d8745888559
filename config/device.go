// SPDX-License-Identifier: Apache-2.0

package config

import (
	"crypto/sha256"
	_ "embed" // the defaults are data
	"encoding/hex"
	"encoding/json"

	"deviceshare/sharing"
	"deviceshare/sharing/podspec"
	"deviceshare/sharing/request"
)

// The ConfigMap of the cluster-wide settings, and the key in it.
const (
	DeviceName = "volcano-vgpu-device-config"
	DeviceKey  = "device-config.yaml"
)

// Device is the cluster-wide configuration: what stands below nvidia: in
// device-config.yaml.
type Device struct {
	// The resource names. Percentage and priority may be empty: then the
	// resource does not exist.
	CountName, MemoryName, CoreName, PercentageName, PriorityName string
	// OverwriteEnv hides the devices from containers that ask for none.
	OverwriteEnv bool
	// DefaultMemory, in units of MemoryFactor MiB, and DefaultCores, in percent,
	// are for containers that ask for devices and do not say; 0 is the whole
	// memory and no guarantee. DefaultCount is the number of devices the webhook
	// writes where only memory or cores are asked.
	DefaultMemory, DefaultCores, DefaultCount int64
	// SplitCount is how many containers may share one device at most.
	SplitCount int64
	// MemoryScaling and CoreScaling multiply what a device offers.
	MemoryScaling, CoreScaling float64
	// DisableCoreLimit switches the compute limit in containers off.
	DisableCoreLimit bool
	// LeaveIdle holds containers to their share of compute even while their neighbours
	// do not use theirs.
	LeaveIdle bool
	// ContextFree leaves contexts and code out of memory limits.
	ContextFree bool
	// KeepDeepbind does not remove RTLD_DEEPBIND where programs set it. With that flag
	// a library calls the driver directly, past a preloaded library.
	KeepDeepbind bool
	// StandIn also puts libvgpu.so in the place of the driver's libraries, for callers
	// that preloading does not reach.
	StandIn bool
	// MemoryFactor is the unit of memory amounts in MiB.
	MemoryFactor int64
	// PassDeviceSpecs asks for device nodes beside CDI. It is accepted for the
	// sake of existing files; CDI always brings the nodes.
	PassDeviceSpecs bool
	// Known are the geometries by model. The first entry that matches a model is
	// used.
	Known []ModelGeometries
	// MIGPolicy is how partitions are chosen on models whose entry does not say.
	MIGPolicy sharing.PartitionPolicy
}

// ModelGeometries are the geometries allowed on some models.
type ModelGeometries struct {
	// Models are names of models, see sharing.IsModel; one that matches is enough.
	Models     []string
	Geometries []sharing.Geometry
	// Policy holds instead of Device.MIGPolicy if it is not nil.
	Policy *sharing.PartitionPolicy `json:",omitempty"`
}

//go:embed default.yaml
var defaultDevice []byte

// DefaultDevice returns the configuration that holds where the ConfigMap says
// nothing.
func DefaultDevice() Device {
	d, _ := readDevice(defaultDevice, Device{}) // a test keeps it free of problems
	return d
}

// LoadDevice reads device-config.yaml. Fields that are not there keep their
// defaults; a list of geometries replaces the default list. With any problem the
// returned value is empty and must not be used.
func LoadDevice(data []byte) (Device, []Problem) {
	return readDevice(data, DefaultDevice())
}

// Names returns the resource names that requests are read with.
func (d Device) Names() podspec.Names {
	return podspec.Names{Number: d.CountName, Memory: d.MemoryName, Cores: d.CoreName, Percentage: d.PercentageName}
}

// Defaults returns what containers get that do not say.
func (d Device) Defaults() request.Defaults {
	return request.Defaults{Memory: d.DefaultMemory, Cores: sharing.Percent(d.DefaultCores)}
}

// Geometries returns the geometries of the first entry of which one name means the
// model. The caller must not change the result.
func (d Device) Geometries(model string) []sharing.Geometry {
	if known := d.modelEntry(model); known != nil {
		return known.Geometries
	}
	return nil
}

// Policy returns how partitions are chosen on a model.
func (d Device) Policy(model string) sharing.PartitionPolicy {
	if known := d.modelEntry(model); known != nil && known.Policy != nil {
		return *known.Policy
	}
	return d.MIGPolicy
}

// modelEntry is the entry that holds for a model, nil if there is none.
func (d Device) modelEntry(model string) *ModelGeometries {
	for i := range d.Known {
		for _, name := range d.Known[i].Models {
			if sharing.IsModel(name, model) {
				return &d.Known[i]
			}
		}
	}
	return nil
}

// Hash identifies the content: two texts that say the same have the same hash.
func (d Device) Hash() string { return contentHash(d) }

// GeometryHash identifies the geometries and their policies alone, so that a
// change of another setting does not make placements in partitions stale. Where
// no policy is written it is the hash of the geometries, as it was before there
// were policies.
func (d Device) GeometryHash() string {
	if d.MIGPolicy == sharing.FirstMatch {
		return contentHash(d.Known)
	}
	return contentHash([]any{d.MIGPolicy, d.Known})
}

// contentHash is the beginning of the SHA-256 of the value as JSON, whose field order is
// that of the type. 64 bits are plenty to tell a handful of versions apart.
func contentHash(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return "" // numbers, texts and lists always marshal
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
