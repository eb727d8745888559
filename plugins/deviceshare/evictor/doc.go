// SPDX-License-Identifier: Apache-2.0

// Package evictor evicts pods that have to leave so that others have room.
//
// Volcano's own evictor starts a goroutine for each victim, deletes by name without a precondition,
// passes PodDisruptionBudgets by, and takes a pod for evicted although its deletion failed. This
// one has a bounded number of workers and ends each order with a definite answer of the API server:
//
//	look ──► wanted? leading? ──► Eviction with the UID ──► condition DisruptionTarget
//	  ▲                                  │                        │
//	  └────────── back-off ◄─────────────┴──── any error that says nothing
//
// The condition comes second: the Eviction API writes one of its own, and a pod that a budget keeps
// is no target of a disruption.
//
// Before an eviction it asks whether the victim still has to leave: the pod that wanted the room
// may be gone meanwhile.
package evictor
