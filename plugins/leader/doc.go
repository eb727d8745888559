// SPDX-License-Identifier: Apache-2.0

// Package leader lets one of several schedulers place pods at a time. It is client-go's election by
// a Lease with two promises more.
//
// No write after the lease: a process that was frozen, or cut off from the API server, goes on with
// what it had begun when it wakes, and client-go lets it go on for another RenewDeadline. Whoever
// writes asks its Term first, which ends when another process may lead.
//
// No lease after the work: a process that is told to end gives the lease back when its last write
// has been answered, so that another one leads within seconds and not when the lease has run out.
package leader
