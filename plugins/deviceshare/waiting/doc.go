// SPDX-License-Identifier: Apache-2.0

// Package waiting tells each pod that waits for devices why: the cause before its effects, in one
// text for the pod's condition and its event, and counts who waits for what.
//
//	explain.go   the causes in their order; devices.go, queue.go and job.go find their texts
//	witness.go   which plugin of Volcano said no to a job, a task or a queue
//	counts.go    who waits, for metrics
//	news         when a pod is told another text; pure
//
// It decides nothing about devices: what it says is what the plugin of the session answers through
// Scheduler, and what Volcano's plugins have decided.
package waiting
