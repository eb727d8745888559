// SPDX-License-Identifier: Apache-2.0

// Package view turns the state of a cluster into what people look at: tables, bars and reasons.
//
// It is pure. It computes nothing that the scheduler computes too: who holds what is read by
// package nodes, whether a pod fits is asked of place.Place, and both are what the scheduler uses.
package view
