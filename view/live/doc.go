// SPDX-License-Identifier: Apache-2.0

// Package live keeps a capture of a cluster current: it lists nodes, pods, queues and pod groups
// once and watches them from then on. Of each object it keeps what a capture keeps, so that a pod
// without devices costs no memory.
package live
