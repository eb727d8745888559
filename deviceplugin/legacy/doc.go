// SPDX-License-Identifier: Apache-2.0

// Package legacy is everything that the device plugin does only for Volcano's
// existing device plugin and schedulers, so that a fleet can be moved node by node
// and the scheduler before or after the nodes: receipts for pods of the legacy
// scheduler, and memory and compute as kubelet devices for as long as pods of the
// legacy device plugin hold some. Our own scheduler needs none of it; the package
// can be deleted when nobody runs the others any more.
package legacy
