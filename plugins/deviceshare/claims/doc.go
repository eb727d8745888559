// SPDX-License-Identifier: Apache-2.0

// Package claims knows the ResourceClaims of our driver: what each holds of which node's devices,
// by its status or, until the API server has shown that, by what this scheduler decided.
//
// The status of a claim is the truth. A claim that somebody else allocated on our devices, or of
// which nobody can read what it has, blocks the devices of its node. One that lost its allocation,
// or was deleted, while a pod that had it is still there goes on holding.
package claims
