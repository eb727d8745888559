// SPDX-License-Identifier: Apache-2.0

package otherplugin

import (
	"fmt"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Device is one GPU of a node.
type Device struct {
	UUID, Model string
	MemoryMiB   int64
	// Index is the driver's, by which its device file is named.
	Index int
}

// Runtime is what NVIDIA's container runtime would add to a container that has devices: the
// driver's libraries and the device files. Paths are those of the node.
type Runtime struct {
	// Libraries is the directory of libcuda.so.1 and libnvidia-ml.so.1.
	Libraries string
	// Dev is the directory of device files.
	Dev string
}

// guestLibraries is where Debian's loader looks in a container.
const guestLibraries = "/usr/lib/x86_64-linux-gnu/"

// give adds the driver and the device files to an answer.
func (r Runtime) give(to *pluginapi.ContainerAllocateResponse, devices []Device) {
	for _, name := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} {
		to.Mounts = append(to.Mounts, &pluginapi.Mount{ContainerPath: guestLibraries + name, HostPath: r.Libraries + "/" + name, ReadOnly: true})
	}
	names := []string{"nvidiactl"}
	for _, d := range devices {
		names = append(names, fmt.Sprintf("nvidia%d", d.Index))
	}
	for _, name := range names {
		to.Devices = append(to.Devices, &pluginapi.DeviceSpec{ContainerPath: "/dev/" + name, HostPath: r.Dev + "/" + name, Permissions: "rw"})
	}
}
