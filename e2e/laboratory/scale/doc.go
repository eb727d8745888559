// SPDX-License-Identifier: Apache-2.0

// Package scale measures how many pods per second a large cluster places, with and without
// devices. The control plane and the scheduler are real; the nodes are objects that nobody stands
// behind, and a light loop reports their pods running.
//
// Both kinds of pods take turns in one run, so that whatever else the machine does slows both
// alike: the ratio of the two stays meaningful on a busy machine, the pods per second do not.
package scale
