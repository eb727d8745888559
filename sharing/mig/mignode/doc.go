// SPDX-License-Identifier: Apache-2.0

// Package mignode prepares containers of mode mig: it makes the instance of the
// device that the scheduler chose, at exactly the place it chose, and says which
// MIG device the container gets. Layout below the root:
//
//	<device>/<owner>_<container>   a holding: the partition that the container
//	                               holds, and what was made there for it
//
// A holding is written before anything is made for it, so that whatever is in use
// has an owner on disk, and again when it is made. There is one file per holding:
// one that cannot be read stands in the way of others on its device, and goes away
// with its owner, whose name is the file's.
//
// Instances are a cache. One that nobody holds stays for the next container that
// wants the same place, and is destroyed when its space is wanted or the device
// leaves the mode. Nothing else destroys instances: who made them does not matter,
// only whether somebody holds them.
//
// The hardware, not the disk, says what exists: after a reboot every instance is
// gone, and the next start of a container makes its own again.
package mignode
