// SPDX-License-Identifier: Apache-2.0

// Package plan chooses which pods have to leave so that another one fits: the least harm that is
// enough, or a proof that no evictions help.
//
//	World   nodes with what could leave them, gangs, budgets
//	Wish    the pod that waits, and whom it may evict
//	Find    returns the cheapest Plan, or No with the reasons
//
// place.Place alone says whether a pod fits the devices of a node. Harm is a Cost, a vector that is
// compared from the left. A plan breaks no budget, and leaves no gang with less than it needs: such
// a gang leaves as a whole.
package plan
