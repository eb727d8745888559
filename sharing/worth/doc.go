// SPDX-License-Identifier: Apache-2.0

// Package worth says what later pods lose on a node when a pod is placed on it.
//
// The pods that have arrived are the forecast of those that will. A Model learns from them which
// sizes of shares are usual, and how much of each free part of a device such shares can fill
// together. How much of a node is usable to one kind of pod is that of its devices, as far as its
// CPU and memory go. docs/placement.md has the formulas.
package worth
