// SPDX-License-Identifier: Apache-2.0

// Package view turns the state of a cluster into what people look at: tables, bars and reasons.
//
// It is pure. It computes nothing that the scheduler computes too: who holds what is read by
// package nodes, which the scheduler uses, and why a pod waits is the scheduler's own sentence.
package view
