// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"fmt"
	"path"
	"slices"

	"tags.cncf.io/container-device-interface/specs-go"

	"deviceshare/deviceplugin/modes"
)

// DriverName is the CDI device that brings what every container with a device needs. Each gets it
// beside its own allocation. The container runtime reads all specifications anew whenever one
// changes; a real driver has some forty files, and they stand in one specification instead of in
// that of every container.
const DriverName = driverKind + "=" + driverDevice

const (
	driverKind   = vendor + "/driver"
	driverDevice = "files"
	driverFile   = "volcano.sh-driver.json"
)

// DriverSpec renders what every container gets, but for the files that another one may stand in
// for: see ownMounts.
func DriverSpec(common *specs.ContainerEdits) ([]byte, error) {
	edits := *common
	edits.Mounts = slices.DeleteFunc(slices.Clone(common.Mounts), isReplaceable)
	env, err := mergeEnv(edits.Env, []modes.Variable{NoneVisible()})
	if err != nil {
		return nil, fmt.Errorf("render what containers need of the driver: %w", err)
	}
	edits.Env = env
	text, err := renderSpec(driverKind, driverDevice, &edits)
	if err != nil {
		return nil, fmt.Errorf("render what containers need of the driver: %w", err)
	}
	return text, nil
}

// ownMounts are the files of the driver that stand in each allocation's own specification: a
// library may stand in for them, and of two specifications that mount one path the order would
// decide.
func ownMounts(common *specs.ContainerEdits) []*specs.Mount {
	if common == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(common.Mounts), func(m *specs.Mount) bool { return !isReplaceable(m) })
}

// isReplaceable reports whether a library may stand in for a file.
func isReplaceable(m *specs.Mount) bool {
	name := path.Base(m.ContainerPath)
	return versionOf(name, "libcuda.so") || versionOf(name, "libnvidia-ml.so")
}
