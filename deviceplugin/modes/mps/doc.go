// SPDX-License-Identifier: Apache-2.0

// Package mps prepares containers of mode mps. Every device in the mode has an
// MPS control daemon of its own, started when a container first needs it, found
// again after a restart of this process, and started again when it dies. Layout:
//
//	<directories>/<device>/pipe   where clients find the daemon; the same path in
//	                              containers; a tmpfs of its own
//	<directories>/<device>/log    the logs of daemon and server
//	<directories>/<device>/shm    /dev/shm of the daemon and of its clients; a tmpfs
//	                              of its own
//	<directories>/<device>/started    written once the daemon has its defaults
//	<root>/devices/<device>       the state of the device before, and the defaults of
//	                              its daemon; written before the first effect
//	<root>/containers/<owner>_<name>/claim    who runs there as which user
//	<root>/...                    what package limits keeps
//
// What limits a container, and what does not:
//   - its memory, by libvgpu.so over all its processes; MPS's own limit beside it
//     is per process and travels in the environment, where a program can drop it
//   - its share of compute, by the client side of MPS, from the environment: a cap
//     without a reservation, which a program escapes by removing the variable
//   - the device takes contexts of the MPS server only (EXCLUSIVE_PROCESS), so a
//     program that bypasses the daemon gets none
//
// A container that gets its device whole is a client without limits.
//
// Root in a container can write in the pipe directory, and so cut off its neighbours on
// the same device from the daemon. It can do no more than that: nothing in the directory
// is trusted, its size is limited, every command to a daemon has a timeout, and devices
// are supervised independently.
package mps
