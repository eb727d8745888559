// SPDX-License-Identifier: Apache-2.0

// Package otherplugin stands in for the device plugins of others that a node may have before or
// beside ours. Each is written after what the real one says to the kubelet and to the API server,
// and shares no code with this project's.
//
// VGPU is Volcano's existing vGPU device plugin with HAMi-core. It has its known limits too: it
// finds the pod of an allocation by counting devices, and fails for pods with several containers
// that ask. NVIDIA's container runtime, which gives its containers the driver, is played by it as
// well, and the library it mounts is the one of this repository.
//
// NVIDIA is NVIDIA's plugin for whole devices, resource nvidia.com/gpu.
package otherplugin
