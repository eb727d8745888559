// SPDX-License-Identifier: Apache-2.0

// Package cdi writes an injection as a CDI specification. Each specification has exactly one
// device, and its name is the allocation id. The kubelet passes that name to the container
// runtime, which resolves it to this file only. So a container gets what was prepared for its
// own allocation, or does not start. What is the same for all of them is in a specification of
// its own, whose name each of them gets too.
package cdi

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	"tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/deviceplugin/modes"
	"deviceshare/sharing"
)

// Vendor, class and kind of our CDI devices. They differ from every kind of
// NVIDIA's own tools, so that their specifications never answer for ours.
const (
	vendor = "volcano.sh"
	class  = "vgpu"
	Kind   = vendor + "/" + class
)

// Base gives the edits that any container needs to use devices at all: device
// nodes, driver libraries, hooks. Implementations are safe for concurrent use. An error is the
// answer when ctx ends while the driver is awaited. The answers must not be changed.
type Base interface {
	// Common is what every container with a device needs, whichever it has.
	Common(ctx context.Context) (*specs.ContainerEdits, error)
	// Edits is what a container with exactly these devices needs beside. It is an error if
	// a device is not there.
	Edits(ctx context.Context, devices []sharing.DeviceID) (*specs.ContainerEdits, error)
}

// NewID returns the id of a new allocation.
func NewID() (string, error) {
	var raw [10]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return "", fmt.Errorf("make an allocation id: %w", err)
	}
	return hex.EncodeToString(raw[:]), nil
}

// Name is the CDI device name of an allocation, as the kubelet passes it on.
func Name(id string) string { return Kind + "=" + id }

// ID takes the allocation id out of a CDI device name; false if it is not ours.
func ID(name string) (string, bool) {
	v, c, id, err := parser.ParseQualifiedName(name)
	return id, err == nil && v == vendor && c == class
}

// File is the name of the specification file of an allocation.
func File(id string) string { return filePrefix + id + ".json" }

const filePrefix = "volcano.sh-vgpu-"

// FileID takes the allocation id out of a file name; false if it is not ours.
func FileID(name string) (string, bool) {
	id, ours := strings.CutPrefix(name, filePrefix)
	id, json := strings.CutSuffix(id, ".json")
	return id, ours && json && parser.ValidateDeviceName(id) == nil
}

// Spec renders an injection over the edits of its devices into the text of a specification
// that the CDI library accepts. Of what is common to all it has what ownMounts says. Equal
// arguments give equal texts.
func Spec(id string, common, base *specs.ContainerEdits, in modes.Injection) ([]byte, error) {
	edits, err := mergeEdits(ownMounts(common), base, in)
	if err != nil {
		return nil, fmt.Errorf("render allocation %s: %w", id, err)
	}
	edits.Mounts = append(edits.Mounts, sealMount(id))
	text, err := renderSpec(Kind, id, edits)
	if err != nil {
		return nil, fmt.Errorf("render allocation %s: %w", id, err)
	}
	return text, nil
}

func renderSpec(kind, name string, edits *specs.ContainerEdits) ([]byte, error) {
	spec := &specs.Spec{Kind: kind, Devices: []specs.Device{{Name: name, ContainerEdits: *edits}}}
	if err := parser.ValidateDeviceName(name); err != nil {
		return nil, err
	}
	err := (&cdi.ContainerEdits{ContainerEdits: edits}).Validate()
	if err != nil {
		return nil, err
	}
	if spec.Version, err = cdi.MinimumRequiredVersion(spec); err != nil {
		return nil, err
	}
	text, err := json.MarshalIndent(spec, "", "  ")
	return append(text, '\n'), err
}

// mergeEdits puts the injection over the base: variables replace, the rest is added.
// In the container ours come after the pod's own, and runc lets the last of two
// win; the limits that matter are in a read-only file all the same.
func mergeEdits(own []*specs.Mount, base *specs.ContainerEdits, in modes.Injection) (*specs.ContainerEdits, error) {
	edits := &specs.ContainerEdits{}
	if base != nil {
		*edits = *base
		edits.DeviceNodes, edits.Hooks = slices.Clone(base.DeviceNodes), slices.Clone(base.Hooks)
	}
	edits.Mounts = slices.Concat(own, edits.Mounts)
	env, err := mergeEnv(edits.Env, append(slices.Clone(in.Env), NoneVisible()))
	if err != nil {
		return nil, err
	}
	edits.Env = env
	for _, node := range in.DeviceNodes {
		if err := requireCleanPath(node); err != nil {
			return nil, fmt.Errorf("device node: %w", err)
		}
		edits.DeviceNodes = append(edits.DeviceNodes, &specs.DeviceNode{Path: node, HostPath: node})
	}
	if edits.Mounts, err = standIn(edits.Mounts, in.StandIns); err != nil {
		return nil, err
	}
	for _, m := range in.Mounts {
		if err := requireCleanPath(m.Host); err != nil {
			return nil, fmt.Errorf("mount: %w", err)
		}
		if err := requireCleanPath(m.Container); err != nil {
			return nil, fmt.Errorf("mount: %w", err)
		}
		edits.Mounts = append(edits.Mounts, bindMount(m.Host, m.Container, m.ReadOnly))
	}
	return edits, addHooks(edits, in.Hooks)
}

// NoneVisible returns the variable that keeps NVIDIA's runtime, where it is the default, from
// adding devices of its own. The runtime gives a container the devices that this variable names,
// which is all of them in many images.
func NoneVisible() modes.Variable {
	return modes.Variable{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"}
}

// bindMount is a bind mount that lets in neither device nodes nor set-user-id files.
func bindMount(host, container string, readOnly bool) *specs.Mount {
	access := "rw"
	if readOnly {
		access = "ro"
	}
	return &specs.Mount{HostPath: host, ContainerPath: container, Options: []string{access, "nosuid", "nodev", "rbind", "rprivate"}}
}

// mergeEnv is the variables of base with those of over in place, sorted by name.
func mergeEnv(base []string, over []modes.Variable) ([]string, error) {
	values := map[string]string{}
	for _, line := range base {
		name, value, ok := strings.Cut(line, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("variable %q of the driver's edits has no value", line)
		}
		values[name] = value
	}
	for _, v := range over {
		if v.Name == "" || strings.Contains(v.Name, "=") || !isEncodable(v.Name) || !isEncodable(v.Value) {
			return nil, fmt.Errorf("variable %q cannot be set", v.Name)
		}
		values[v.Name] = v.Value
	}
	env := make([]string, 0, len(values))
	for name, value := range values {
		env = append(env, name+"="+value)
	}
	slices.Sort(env)
	return env, nil
}

// requireCleanPath refuses paths that are not absolute, or not in their shortest form.
func requireCleanPath(p string) error {
	if !path.IsAbs(p) || path.Clean(p) != p || p == "/" || !isEncodable(p) {
		return fmt.Errorf("%q is not a clean absolute path", p)
	}
	return nil
}

// isEncodable reports whether a text survives the way into the container. The CDI
// library reads specifications as YAML, which has no place for some characters
// that JSON leaves as they are; nothing after a zero byte would arrive.
func isEncodable(s string) bool {
	for i, r := range s {
		switch {
		case r == 0, r >= 0x7f && r < 0xa0, r == 0xfeff, r == 0xfffe, r == 0xffff:
			return false
		case r == utf8.RuneError:
			if _, width := utf8.DecodeRuneInString(s[i:]); width == 1 {
				return false
			}
		}
	}
	return true
}
