// SPDX-License-Identifier: Apache-2.0

// Package demand tells autoscalers how many nodes the waiting pods need.
//
// Cluster Autoscaler and Karpenter add up what is free of a node, so that 13 pods of 48 GiB seem to
// fit eight devices of 80 GiB: no node is added, or too few. This package packs the pods that no
// node has devices for on empty nodes as they would be, with the placement that the scheduler uses.
// For each node that an autoscaler would not add by itself it makes a utility pod: it asks for all
// slots of such a node, so that it fits none that is in use, and nobody ever places it.
//
//	nodetype.go   what nodes of a type are like, as a ConfigMap keeps it; learn.go writes it
//	fill.go       how many new nodes pods need
//	expect.go     how many an autoscaler adds without us
//	decide.go     which utility pods there ought to be
//	utility.go    what such a pod looks like, and which have to be made and deleted
//	demand.go     does it, on a goroutine of its own
//
// What ought to be there is decided from what is there, again and again: nothing depends on what
// was decided before.
package demand
