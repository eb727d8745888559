// SPDX-License-Identifier: Apache-2.0

// Package host is the host's file system as the node halves of the backends see it. It
// has a handful of effects. Each is atomic or can be repeated. Production code uses OS. Tests
// use Crashing, which stops before or after any effect, to show that a backend survives a
// crash there.
package host
