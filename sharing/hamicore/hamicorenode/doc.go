// SPDX-License-Identifier: Apache-2.0

// Package hamicorenode prepares containers of mode hami-core: libvgpu.so and the
// limits it enforces are put into them by package limitsnode.
//
// A container whose every share is a whole device gets no library and no limits:
// there is nothing to enforce.
package hamicorenode
