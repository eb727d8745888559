// SPDX-License-Identifier: Apache-2.0

// Package simulate answers what would become of a captured cluster: if pods came, if nodes left, if
// the scheduler had another policy. It has the scheduler itself decide, see package offline.
//
// It asks no clock, file or network: the same capture and the same question give the same answer.
package simulate
