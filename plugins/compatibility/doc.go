// SPDX-License-Identifier: Apache-2.0

// Package compatibility holds tests only: that Volcano's own vgpu package reads
// what we write to the same devices and amounts, and that we read what it writes.
// It is what allows a fleet to be moved node by node. The tests are here and not
// beside the codec so that the domain's tests do not link Volcano.
package compatibility
