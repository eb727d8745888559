// SPDX-License-Identifier: Apache-2.0

// Package mig prepares containers of mode mig. It creates the GPU instance that the
// scheduler chose, at exactly the place it chose, and returns the MIG device for the
// container. Files below the root:
//
//	<device>/<owner>_<container>   a holding: the partition that the container
//	                               holds, and what was made there for it
//
// A holding is written twice: before anything is made, so that whatever is in use has an owner
// on disk, and again afterwards. There is one file per holding. A file that cannot be read
// blocks its own device only, and is removed with its owner, whose name is the file's.
//
// Instances are a cache. An instance that nobody holds stays for the next container that
// wants the same place. It is destroyed when its space is needed or the device leaves the
// mode, and for no other reason. Who made an instance does not matter, only whether somebody
// holds it.
//
// The hardware, not the disk, says which instances exist. After a reboot there are none, and
// the next start of a container makes its own again.
package mig
