// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"
)

// seals is the directory with a mount for the allocation that a container was started with.
const seals = "/volcano-vgpu/"

// sealMount is an empty mount that bears the allocation's id. A process that has it was started
// with this specification, and so with everything in it. It is a file system of its own: a file of
// the host that containers can open could be leased by them, and whoever opens it next would wait.
func sealMount(id string) *specs.Mount {
	return &specs.Mount{
		HostPath: "volcano-vgpu-" + id, ContainerPath: "/run" + seals + id, Type: "tmpfs",
		Options: []string{"ro", "nosuid", "nodev", "noexec", "mode=555", "size=4k"},
	}
}

// IsSealed reports whether a process with these mount points was started with an allocation. /run
// may be a link in its image.
func IsSealed(mountPoints []string, id string) bool {
	return slices.ContainsFunc(mountPoints, func(point string) bool { return strings.HasSuffix(point, seals+id) })
}
