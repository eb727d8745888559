// SPDX-License-Identifier: Apache-2.0

// Package legacy holds everything that the device plugin does only for Volcano's existing
// device plugin and schedulers. With it a fleet can be moved node by node, and the scheduler
// before or after the nodes. It has two parts:
//   - receipts: pods that the legacy scheduler placed are confirmed to that scheduler
//   - amounts: memory and compute are offered as kubelet devices for as long as pods of the
//     legacy device plugin hold some
//
// Our own scheduler needs neither. Delete the package when nobody runs the others any more.
package legacy
