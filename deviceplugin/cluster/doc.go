// SPDX-License-Identifier: Apache-2.0

// Package cluster is the device plugin's side of the API server.
//
// Pods knows the pods of this node from one watch. Publisher keeps what the API
// server says about the node equal to what is true: the inventory annotations and
// the amounts of memory and compute in the node's capacity. The kubelet copies
// capacity to allocatable and leaves keys that are not its own alone, so that one
// write lasts; whenever the node is seen to differ it is written again. Evictor
// evicts pods that this node can never start as they were placed. Withdrawal removes what
// Publishers wrote about all nodes, when the device plugins are uninstalled.
package cluster
