// SPDX-License-Identifier: Apache-2.0

// Package compatibility holds tests only. They show that Volcano's own vgpu package reads
// the same devices and amounts from what this project writes, and the reverse. That is
// what allows a fleet to be moved node by node. The tests are here and not beside the
// codec, so that the domain's tests do not link Volcano.
package compatibility
