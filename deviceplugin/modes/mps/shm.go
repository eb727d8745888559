// SPDX-License-Identifier: Apache-2.0

package mps

import (
	"io/fs"

	"deviceshare/sharing"
)

// A daemon and all its clients have one /dev/shm: server and client make shared memory there by
// name, and a client that has another one fails in its first call of CUDA. So a volume that a pod
// has there itself cannot stay. What it is for is kept: its size.

// shmMode is that of /dev/shm everywhere.
const shmMode = 0o777 | fs.ModeSticky

// shmLeast is what a device has in any case: as container runtimes give one container.
const shmLeast = 64 * sharing.MiB

// shmSize returns how large /dev/shm of a device is: what its pods may have there together. A pod
// that does not say counts with each, and so does a device without pods. All devices of the node
// have no more than most together. What is written there counts for the memory of the container
// that writes, but stays when the container has ended.
func shmSize(id sharing.DeviceID, all []claimRecord, each, most sharing.Bytes) sharing.Bytes {
	type pod struct {
		owner  sharing.Owner
		device sharing.DeviceID
	}
	pods := map[pod]sharing.Bytes{}
	for _, c := range all {
		asked := c.Shm
		if asked <= 0 {
			asked = each
		}
		key := pod{c.owner, c.Device} // containers of a pod share what it has
		pods[key] = max(pods[key], asked)
	}
	var here, elsewhere sharing.Bytes
	for key, asked := range pods {
		if key.device == id {
			here = here.Plus(asked)
		} else {
			elsewhere = elsewhere.Plus(asked)
		}
	}
	if here == 0 {
		here = each
	}
	return min(here, max(most.Less(elsewhere), shmLeast))
}
