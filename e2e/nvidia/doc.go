// SPDX-License-Identifier: Apache-2.0

// Package nvidia pins, as a tool, NVIDIA's container runtime: what gives a container the devices
// that NVIDIA_VISIBLE_DEVICES names. It is a main package of another module; this module exists so
// that its version is written down somewhere and none of its dependencies become the product's, or
// change those of containerd.
package nvidia
