// SPDX-License-Identifier: Apache-2.0

// Package room makes room for pods in Volcano's sessions: it carries out what the actions preempt
// and reclaim choose, and keeps what was cleared until the pods are bound for which it was.
//
//	BeginSession   before the first action: holds are brought up to date and applied, by statements
//	               that are neither committed nor discarded. They change this session only, so every
//	               action sees victims as leaving and places as taken
//	Choose         around preempt and reclaim: what they commit becomes a hold, and the evictor sends it
//	Text           what a pod with a place is told while victims end
//
// volcano.go holds what may be different in other versions of Volcano.
//
// All methods but IsWanted belong to the session goroutine.
package room
