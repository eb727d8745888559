// SPDX-License-Identifier: Apache-2.0

// Package queues holds pods to the limits of their queues and namespaces: how much memory, compute
// and how many devices the pods of one have together, in what they really get. Package quota knows
// the arithmetic; this package counts who takes what in a session of Volcano, and answers for the
// queues.
//
//	Memory     what outlives sessions: what pods on nodes take, their queues, what was reported
//	Limits     the limits of one session, nil if there are none
//	Allowance  what one task may take
//
// The session goroutine calls everything but the methods of Allowance and those that make one;
// workers may call these as well.
package queues
