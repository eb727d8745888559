// SPDX-License-Identifier: Apache-2.0

// Package claims knows the ResourceClaims of our driver: what each holds of which node's devices,
// by its status or, until the API server has shown that, by what this scheduler decided.
//
// The status of a claim is the truth. A claim that somebody else allocated on our devices, or of
// which nobody can read what it has, blocks the devices of its node. A claim can lose its
// allocation, or be deleted, while one of its pods still runs. Then it holds its devices until that
// pod has ended.
package claims
