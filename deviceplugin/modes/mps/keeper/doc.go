// SPDX-License-Identifier: Apache-2.0

// Package keeper is the process that MPS control daemons are children of, so that they outlive
// the device plugin's container, and how a device plugin talks to it. It runs in a pod of its
// own, which updates of the device plugin leave alone.
//
//	Client   the device plugin's side; implements mps.Keeper
//	Server   starts the control program, takes in the daemon that it leaves behind, and
//	         remembers how each ended
//
// The server decides nothing about devices. It starts one program, with the options that a
// daemon can have, for directories below its own root. What a daemon is told, and who may use
// it, is the device plugin's.
//
// A server that is told to end waits until no container is left that has a daemon's device,
// and starts no daemon meanwhile. Then it ends the daemons, and itself.
package keeper
