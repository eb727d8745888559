// SPDX-License-Identifier: Apache-2.0

package otherplugin

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// NVIDIAResource is the resource of whole devices.
const NVIDIAResource = "nvidia.com/gpu"

// NVIDIA offers whole devices to the kubelet: one slot is one device. What the kubelet picks is
// what the container gets; no scheduler has a say.
type NVIDIA struct {
	devices []Device
	runtime Runtime
	server  *server
}

// StartNVIDIA offers devices to the kubelet whose directory this process sees as kubeletDir.
func StartNVIDIA(ctx context.Context, kubeletDir string, runtime Runtime, devices ...Device) (*NVIDIA, error) {
	n := &NVIDIA{devices: devices, runtime: runtime}
	var slots []*pluginapi.Device
	for _, d := range devices {
		slots = append(slots, &pluginapi.Device{ID: d.UUID, Health: pluginapi.Healthy})
	}
	var err error
	n.server, err = serve(ctx, filepath.Join(kubeletDir, "device-plugins"), "nvidia-gpu.sock", NVIDIAResource, slots, n)
	return n, err
}

// Stop ends it.
func (n *NVIDIA) Stop() { n.server.stop() }

func (n *NVIDIA) allocate(_ context.Context, ids []string) (*pluginapi.ContainerAllocateResponse, error) {
	var devices []Device
	for _, id := range ids {
		i := slices.IndexFunc(n.devices, func(d Device) bool { return d.UUID == id })
		if i < 0 {
			return nil, fmt.Errorf("no device %s here", id)
		}
		devices = append(devices, n.devices[i])
	}
	out := &pluginapi.ContainerAllocateResponse{}
	n.runtime.give(out, devices)
	return out, nil
}
