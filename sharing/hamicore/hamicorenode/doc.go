// SPDX-License-Identifier: Apache-2.0

// Package hamicorenode prepares containers of mode hami-core: it writes the
// limits that libvgpu.so enforces, makes the directory that the processes of one
// container share, and says what to mount. Layout below the root:
//
//	lib/libvgpu-<hash>.so          one file per content: an upgrade adds a file
//	                               and never changes one that a process has mapped;
//	                               old ones stay, containers may be mounted from them
//	ld.so.preload                  one line, the library's path in containers
//	containers/<owner>_<name>/     0700, so that nobody else on the host gets in
//	  limits                       read-only in the container
//	  vgpu/                        01777, because a container runs as any user
//
// Limits travel in a read-only file because a container can set variables but
// cannot change a read-only mount. For the same reason CUDA_DISABLE_CONTROL in
// the environment of a container, which switched the limits off upstream, is not
// honoured.
//
// A container whose every share is a whole device gets no library and no limits:
// there is nothing to enforce.
package hamicorenode
