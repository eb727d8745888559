// SPDX-License-Identifier: Apache-2.0

// Package offline runs Volcano's scheduler with the plugin deviceshare in this process, on a
// cluster that is a list of objects: its cache, its sessions and its actions are the real ones, and
// an API server is played by this package. Simulations use it.
//
// Nothing runs beside the caller. What Volcano hands to goroutines and to an API server, binds,
// evictions, states of groups and conditions of pods, is carried out between two sessions, in an
// order that depends on the objects alone. No clock is asked for what is decided: the same objects
// give the same placements.
//
// Three things are simpler than in a cluster. A pod that is bound runs at once; one that is evicted
// is gone at once; what controllers do, such as making an evicted pod anew, is left to the caller.
// Only what PodDisruptionBudgets allow is brought up to date when pods come and go.
//
// Volcano keeps its plugins and actions by process: of several clusters in one process, use one at
// a time.
package offline
