// SPDX-License-Identifier: Apache-2.0

// Package deviceshare is the adapter between the Volcano scheduler and the
// domain: it translates Volcano's nodes, tasks and events into ledgers and
// requests, and the domain's placements and refusals back into reservations,
// scores, fit errors and annotations. It decides nothing about devices itself.
//
// Who is on a node comes from the session's snapshot, in which Volcano's own
// accounting is kept. Which devices a pod has comes from its annotations; while
// these have not come back from the API server, from what this process assumed
// when it sent them; and if neither is readable, the devices of the node count
// as taken. What a bound pod was first read from stays, since others can write
// annotations too. So a lost response, a failed bind, a restart or a change of leader
// heals with the next snapshot.
//
// A session's own reservations live in an overlay that is thrown away when the
// session closes. Nothing in the scheduling loop talks to the API server: the
// placement travels on the Binding.
//
// Concurrency: Volcano runs sessions in one goroutine and calls predicates and
// scores from many. Those only read. What outlives a session is written in the
// session goroutine and by the goroutines that bind, under the locks of Store
// and assumptions.
package deviceshare
