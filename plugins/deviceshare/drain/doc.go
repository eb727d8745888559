// SPDX-License-Identifier: Apache-2.0

// Package drain evicts the pods that hold devices of a node whose driver NVIDIA's GPU operator
// replaces.
//
// The operator finds no such pods itself: it looks for names of resources that begin with
// nvidia.com/. The device plugin leaves the node meanwhile, so that the scheduler that leads does
// it. PodDisruptionBudgets hold, and what stays is told on the node. Nothing depends on the order
// of things: the driver's pod tries again until the node is empty.
package drain
