// SPDX-License-Identifier: Apache-2.0

// Package cluster is the device plugin's side of the API server.
//
// Pods knows the pods of this node from one watch.
//
// Publisher writes the node object: the annotations with the inventory, and the amounts of
// memory and compute in the node's capacity. The kubelet copies capacity to allocatable and
// keeps entries that are not its own, so one write lasts. Publisher writes again whenever the
// node object differs from what it should be.
//
// Slices knows what DRA drivers offer of this node, from another.
//
// Evictor evicts pods that can never start on this node as they were placed.
//
// Withdrawal removes what Publishers wrote about all nodes, when the device plugins are
// uninstalled.
package cluster
