// SPDX-License-Identifier: Apache-2.0

// Package chaos tries to break an installed cluster: pods of every kind and mode come and go while
// the parts of the cluster are killed and frozen, settings are edited and devices fail. After each
// of these events an observer compares what was promised with what is there.
//
//	Plan        what happens next, by a seed
//	Disturber   does it to the cluster
//	Traffic     pods of users, and how each of them ends
//	Observer    reads the API server, the fake driver and the machine's processes
//	Violations  what of that breaks a promise
//
// The observer shares no code with the product: it reads annotations and amounts by its own
// means. A check that trusted the product's readers would miss what they get wrong.
package chaos
