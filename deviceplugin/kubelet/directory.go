// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
)

// Directory is the kubelet's root directory, usually /var/lib/kubelet.
type Directory string

// DevicePlugins is the directory of the sockets of device plugins.
func (d Directory) DevicePlugins() string { return filepath.Join(string(d), "device-plugins") }

// PodResources is the socket of the podresources API.
func (d Directory) PodResources() string {
	return filepath.Join(string(d), "pod-resources", "kubelet.sock")
}

// TruePodResources is the socket of package mirror. It is beside the kubelet's because exporters
// have that directory mounted.
func (d Directory) TruePodResources() string {
	return filepath.Join(string(d), "pod-resources", "deviceshare.sock")
}

// ReadCheckpoint implements CheckpointReader. The error is fs.ErrNotExist if the
// kubelet has not written a checkpoint yet.
func (d Directory) ReadCheckpoint() (Record, error) { return readCheckpointIn(d.DevicePlugins()) }

// readCheckpointIn reads the checkpoint in the kubelet's directory of device plugins.
func readCheckpointIn(plugins string) (Record, error) {
	text, err := os.ReadFile(filepath.Join(plugins, "kubelet_internal_checkpoint"))
	if err != nil {
		return Record{}, fmt.Errorf("read the kubelet's device checkpoint: %w", err)
	}
	return DecodeCheckpoint(text)
}
