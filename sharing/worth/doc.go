// SPDX-License-Identifier: Apache-2.0

// Package worth says what a node loses of its worth to later pods when a pod is placed on it.
//
// The pods that have arrived are the forecast of those that will. From their kinds a Model
// learns what each size of a share is worth, in whole devices: the dual prices of cutting
// devices into the sizes that were asked for (Gilmore and Gomory, A Linear Programming
// Approach to the Cutting-Stock Problem, Operations Research 9, 1961). The worth of what is
// free of a device is the most that shares which fit there are worth together. The worth of
// a node to one kind of pod is that of its devices, as far as its CPU and memory go for it.
package worth
