// SPDX-License-Identifier: Apache-2.0

// Package sharing is the domain of deviceshare: what a node has, what a
// container asks for, what was decided, and who holds what. It is pure: it
// imports the standard library only and touches no clock, client, log or file,
// so that every decision can be repeated on a laptop from its inputs.
//
// The words, each with one meaning:
//
//	device      one physical GPU as its node published it
//	partition   a hardware slice of a device (a MIG instance)
//	geometry    a named group of partitions an administrator allows together
//	mode        how a device is shared: hami-core, mig, mps, time-slicing
//	backend     the rules of one mode
//	request     what one container asks for
//	share       what one container got of one device
//	cost        what a share takes of its device
//	loss        what later requests lose by a share
//	placement   the decision for one pod: shares by container
//	ledger      placements by owner, over one node's inventory
//	owner       the pod that holds shares, by UID
//	inventory   the devices of one node
//	view        one device together with the shares on it
//	tally       what a backend notes about the partitions on one device
//	reason      why a device was refused; "does not fit" is a value, never an error
//	legacy      the formats of Volcano's existing device plugin and of the scheduler
//	            plugin inside Volcano
//
// The ledger stores placements and never counters. Free memory, used partitions
// and share counts are computed from the shares, so releasing is deleting one
// key and nothing can leak.
//
// None of the types is safe for concurrent writes. Reading a value from many
// goroutines while nobody writes is safe: no read method changes anything.
package sharing
