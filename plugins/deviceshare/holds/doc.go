// SPDX-License-Identifier: Apache-2.0

// Package holds remembers for whom room is being made.
//
// An eviction takes effect seconds after its decision, and a scheduling session remembers nothing
// of the one before. What was cleared for one pod would be given to another, and pods would be
// evicted again. So the decision is kept as a Hold until its pods are bound:
//
//	a job that waits ──Keep──► Hold ──Refresh──► Placed     its pods are bound
//	                            │  ▲            Abandoned  nobody waits for it any more
//	                            └──┘            Failed     something outside prevents it: plan again
//
// A hold has one slot for each pod that room is made for, and the victims that have to leave. After
// two failures a job has to wait before it may evict again: 1, 2, 4 ... 30 minutes.
//
// Reason is the sentence that a victim is given. A scheduler that has just started rebuilds the
// holds from these sentences.
//
// The package is pure: it has no clock and no client. Times are seconds of any clock that never
// goes back. One goroutine changes a Book; many may call MayEvict while it does not.
package holds
