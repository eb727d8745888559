// SPDX-License-Identifier: Apache-2.0

// Package containerd pins, as tools, the container runtime of the sandbox: containerd, its shim,
// its client ctr, and the CNI plugins ptp and host-local. They are main packages of other modules;
// this module exists so that their versions are written down somewhere and none of their
// dependencies become the product's.
package containerd
