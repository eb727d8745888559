// SPDX-License-Identifier: Apache-2.0

// Package room makes room for pods in Volcano's sessions: it carries out what the actions preempt
// and reclaim choose, and keeps what was cleared until the pods are bound for which it was.
//
//	BeginSession   runs before the first action. It brings the holds up to date and applies them
//	Choose         runs preempt or reclaim, makes holds of whom they choose, and has them sent
//	Text           returns what a pod with a place is told while victims end
//
// sharing/plan chooses: planner.go asks it, for the jobs of starving.go, in the world of world.go.
// Which queues give pods up says reclaim.go. For jobs that no plans are made for, Volcano chooses,
// see choose.go.
//
// A hold is applied by a statement that is neither committed nor discarded. Such a statement
// changes this session only: its actions see victims as leaving and places as taken.
//
// volcano.go holds what may be different in other versions of Volcano.
//
// All methods but IsWanted belong to the session goroutine.
package room
