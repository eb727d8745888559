// SPDX-License-Identifier: Apache-2.0

// Package drain evicts the pods that hold devices of a node whose driver NVIDIA's GPU operator
// replaces, or a device that people drain.
//
// The operator finds no such pods itself: it looks for names of resources that begin with
// nvidia.com/. The device plugin leaves the node meanwhile, so that the scheduler that leads does
// it. People could evict the pods of a device themselves; the scheduler knows which those are while
// more come and go, and goes on when their terminal is closed. PodDisruptionBudgets hold, and what
// stays is told on the node. Nothing depends on the order of things.
package drain
