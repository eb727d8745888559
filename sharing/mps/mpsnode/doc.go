// SPDX-License-Identifier: Apache-2.0

// Package mpsnode prepares containers of mode mps. Every device in the mode has an
// MPS control daemon of its own, started when a container first needs it, found
// again after a restart of this process, and started again when it dies. Layout:
//
//	<directories>/<device>/pipe   where clients find the daemon; the same path in
//	                              containers; a tmpfs of its own
//	<directories>/<device>/log    the logs of daemon and server
//	<directories>/<device>/shm    /dev/shm of the daemon and of its clients; a tmpfs
//	                              of its own
//	<directories>/<device>/started    written once the daemon has its defaults
//	<root>/devices/<device>       what the device was like before, and what its
//	                              daemon is told; written before the first effect
//	<root>/containers/<owner>_<name>/claim    who runs there as which user
//	<root>/...                    what package limitsnode keeps
//
// What holds a container, and what does not:
//   - its memory, by libvgpu.so over all its processes; MPS's own limit beside it
//     is per process and travels in the environment, where a program can drop it
//   - its share of compute, by the client side of MPS, from the environment: a cap,
//     no reservation, and a program that removes the variable is not held to it
//   - the device takes contexts of the MPS server only (EXCLUSIVE_PROCESS), so a
//     program that goes past the daemon gets none
//
// A container that gets its device whole is a client without limits.
//
// Root in a container can write the pipe directory. It can so take the daemon of its
// own device from its neighbours there. Everything else is kept from it: nothing in
// that directory is read, what it holds is bounded, no question to a daemon waits for
// ever, and each device is looked after for itself.
package mpsnode
