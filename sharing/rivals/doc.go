// SPDX-License-Identifier: Apache-2.0

// Package rivals decides whether another scheduler takes the same pods as this one. Two schedulers
// of one scheduler name do not know of each other's reservations and give the same share twice.
//
// What counts as another scheduler is said here, and in the chart's volcano-check.yaml for `helm
// install`; one table of cases tests both. The program asks again while it runs, because `helm
// template` sees no cluster.
package rivals
