// SPDX-License-Identifier: Apache-2.0

// Package deviceshare is the adapter between the Volcano scheduler and the domain. It
// translates Volcano's tasks and events into requests, and the domain's placements and
// refusals into reservations, scores, fit errors and annotations. It decides nothing
// about devices itself.
//
// These packages share the work, and each knows only those below it:
//
//	deviceshare     one session: what a task asks, what a node answers, who is evicted
//	binding         what it decided, on its way to the API server
//	metrics, page   what is told of it, to Prometheus and as JSON
//	waiting         why a pod waits
//	room            evictions in sessions, with holds (what is kept for whom) and evictor
//	queues          the limits of queues
//	mix             what pods ask for, learned from those that arrived
//	arguments       what the scheduler's configuration says
//	snapshot        a session of Volcano, as package nodes reads it
//	nodes           what is on the nodes, from one snapshot to the next
//	podstate        what one pod holds, from the decision until it has ended
//
// A session's own reservations live in an overlay, which is thrown away when the session
// closes. What the session commits becomes the decision of the pod's state. Nothing in
// the scheduling loop talks to the API server: the placement travels on the Binding.
//
// These answers are remembered, and nothing else; docs/benchmarks.md has what they save:
//
//	requests.asks       what a pod asks, read once and not in each session
//	requests.turn       the task that is being placed: two look-ups for each node
//	nodes.Node          what it refused and scored last, for eight kinds of pods
//	ask.last            the text of a refusal, which takes longer than the refusal
//	ask.looks           what package waiting groups waiting pods by
//	overlay.futures     the ledger of a node once leaving pods are gone
//	Plugin.fallbacks    why a pod gets none of its first modes: a look at all nodes
//	sharing.View.Plan   where the partitions of a listed geometry lie
//
// What is different in other versions of Volcano is in compat.go, snapshot and binding, and in
// files named volcano.go of queues, room and waiting.
//
// Concurrency: Volcano runs sessions in one goroutine and calls predicates and scores
// from many. Those only read. What outlives a session is in Store and nodes.Cluster. It
// is written by the session goroutine and by the goroutines that bind.
package deviceshare
