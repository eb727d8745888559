// SPDX-License-Identifier: Apache-2.0

package nodeapi

import (
	"context"

	"deviceshare/sharing"
)

// Claim is one container's entitlement on this node, as the scheduler decided it.
type Claim struct {
	// ID is the allocation id: unique per kubelet allocation, stable over
	// restarts of the container, usable as a file name.
	ID        string
	Owner     sharing.Owner
	Namespace string
	Pod       string
	Container string
	// Devices are the container's shares with the device each is of, in PCI
	// order: the order in which CUDA numbers them inside the container.
	Devices []ClaimedDevice
	// Priority is the task priority handed to the compute limiter: 0 is high, 1
	// the default.
	Priority int
	// Policy says when compute limits apply: "" or "default", "force", "disable".
	Policy string
}

// ClaimedDevice is one share and the device it is of.
type ClaimedDevice struct {
	Device sharing.Device
	Share  sharing.Share
}

// Mount is a bind mount from the host into the container.
type Mount struct {
	Host      string
	Container string
	ReadOnly  bool
}

// Variable is one environment variable.
type Variable struct {
	Name, Value string
}

// Injection is what a container needs, as plain values; rendering is elsewhere.
// Two injections of the same claim are equal.
type Injection struct {
	// Devices are the whole devices whose driver nodes and libraries the
	// container sees, in the order of the claim.
	Devices []sharing.DeviceID
	// Env replaces what the pod sets. It is sorted by name.
	Env []Variable
	// Mounts are in the order in which they must be made.
	Mounts []Mount
	// DeviceNodes are further device nodes, such as MIG capabilities.
	DeviceNodes []string
}

// Preparer is the node half of one mode. Implementations are safe for concurrent
// use by different claims.
type Preparer interface {
	Mode() sharing.Mode
	// Prepare makes everything the container needs and says what to inject. It
	// is idempotent: the same claim gives the same injection, also after a crash
	// between any two of its effects. An error means the container must not
	// start; the caller retries.
	Prepare(ctx context.Context, c Claim) (Injection, error)
	// Unprepare removes everything that was made for an owner. An owner that has
	// nothing is no mistake.
	Unprepare(ctx context.Context, o sharing.Owner) error
}
