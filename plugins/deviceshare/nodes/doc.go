// SPDX-License-Identifier: Apache-2.0

// Package nodes knows what is on the nodes of a cluster: which devices each node
// publishes and which pods hold shares of them. It follows snapshots, one after the
// other, and keeps what did not change. It knows nothing of Volcano: the scheduler
// plugin shows it each snapshot through the interface Snapshot.
//
// Who is on a node comes from the snapshot. What a pod holds there comes from package
// podstate: from this process's own decision, from the texts that the pod was bound
// with, or from its annotations. If none can be read, all devices of the node count as
// taken. So a lost response, a failed bind, a restart or a change of leader heals with
// the next snapshot.
//
// A Node is immutable; a node that changed gets a new one. Cluster is written by one
// goroutine, that of the sessions. Pods may be used from many.
package nodes
