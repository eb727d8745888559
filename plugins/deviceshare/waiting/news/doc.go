// SPDX-License-Identifier: Apache-2.0

// Package news decides when a pod that waits is told something new.
//
// The scheduler finds a reason for each waiting pod in every session. Each text that differs from
// the last one becomes a write of the pod's status and an event, and on a busy cluster the numbers
// in a text differ in nearly every session. A client drops the events of a pod that gets too many:
// client-go allows 25 at once, and one more every five minutes. So another cause is told at once,
// and another text about the same cause as often as that allowance permits, and only if its words
// last.
//
// The package decides only. It has no clock and no client, and who it tells is not its concern.
package news
