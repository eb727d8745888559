// SPDX-License-Identifier: Apache-2.0

// Package quota decides whether a queue, or a namespace, may take more of devices: it adds up what
// pods take in real amounts, number times memory and number times cores, and compares that with the
// limits of the queue, of the queues above it, and of the namespace.
//
//	Amounts         what a pod takes of devices, by model
//	Limit           one amount that was given, of all devices or of some models
//	Queue           the limits of one queue, and the name of the queue above it
//	NamespaceQuota  the limits of one ResourceQuota
//	Hierarchy       all queues, and the quotas beside them
//	Account         whose limits a pod counts for
//	Book            which pod takes what, for which account, and when
//	Shortage        which limit a pod would exceed, and by how much
//
// A pod that has its devices takes what it holds of them. Of a pod that has none yet only a
// lower bound is known: the memory of a whole device, or a percentage of it, depends on the
// device. Asked returns the least that any device of the cluster may come to.
package quota
