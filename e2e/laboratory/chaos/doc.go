// SPDX-License-Identifier: Apache-2.0

// Package chaos looks for broken promises of an installed cluster. Pods of every kind and mode come
// and go. Meanwhile the parts of the cluster are killed and frozen, settings are edited, and
// devices fail. After each of these events an observer compares what the cluster promised with what
// is there, and the first difference ends the run. docs/laboratory.md lists the checks.
//
//	Plan         decides, from a seed, what is done next
//	Disturber    does it to the cluster
//	Traffic      creates pods as users do, and judges how each of them ends
//	Residents    are pods that run from the beginning to the end
//	Observer     reads the API server, the scheduler's ledger, the fake driver and the processes
//	Violations   lists what in such a reading breaks a promise
//	Run          puts them together
//
// The observer shares no code with the product. It parses annotations and adds up amounts itself,
// because a check that used the product's readers would make their mistakes too.
package chaos
