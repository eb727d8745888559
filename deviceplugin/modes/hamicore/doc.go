// SPDX-License-Identifier: Apache-2.0

// Package hamicore prepares containers of mode hami-core: package limits mounts
// libvgpu.so and the limits that it enforces.
//
// A container whose shares are all whole devices gets neither library nor limits, because
// there is nothing to enforce.
package hamicore
