// SPDX-License-Identifier: Apache-2.0

// Package capture holds what the views need to know of a cluster, and its text: a file of JSON
// lines without secrets, which is read back on any machine.
//
// The first line says the version. Each further line is one object:
//
//	{"deviceshareCapture":2,"taken":"2026-01-02T03:04:05Z"}
//	{"kind":"Node","object":{...}}
//	{"kind":"Pod","object":{...}}
//
// Lines of the kinds PodScheduling, NodeScheduling, QueueScheduling, PriorityClass, Namespace,
// PodDisruptionBudget and SchedulerConfig hold what a simulation needs besides: requests, labels,
// tolerations, affinity, priorities and budgets. Views skip them. Version 1 did not have them.
//
// Of an object only the fields that decide about devices are kept: no environment, no commands, no
// volumes, no images. What views read of a pod without devices that belongs to a group is only its
// name, its phase and where it is. A reader refuses a version that it does not know. It sets aside
// a line that it cannot read, and says so, since a long file must not be lost by one line.
package capture
