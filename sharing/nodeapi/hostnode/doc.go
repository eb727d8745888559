// SPDX-License-Identifier: Apache-2.0

// Package hostnode is the host's file system as the node halves of the backends
// see it: a handful of effects, each of which either happened entirely or can be
// repeated. Production code uses OS; tests use Crashing, which stops before or
// after any numbered effect, to show that every backend survives a crash there.
package hostnode
