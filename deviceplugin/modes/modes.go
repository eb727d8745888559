// SPDX-License-Identifier: Apache-2.0

package modes

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
	// Kind and Order say when the container runs relative to others of its pod:
	// Order is its place in the pod's spec, init containers first. Only containers
	// that never run at the same time may hold the same part of a device.
	Kind  sharing.ContainerKind
	Order int
	// User is the user id the container runs as, nil when its image decides.
	User *int64
	// SharedMemory is what the pod may have in /dev/shm where that is not the container's own: the
	// size of a volume that it has there, else its memory; 0 where it says neither.
	SharedMemory sharing.Bytes
	// Devices are the container's shares with the device each is of, in PCI
	// order: the order in which CUDA numbers them inside the container.
	Devices []ClaimedDevice
	// Priority is the task priority handed to the compute limiter: 0 is high, 1
	// the default.
	Priority int
	// Policy says when compute limits apply: "" or "default", "force", "disable".
	Policy string
	// Interception is how libvgpu.so behaves in the container.
	Interception Interception
}

// Interception is what the administrator set for libvgpu.so.
type Interception struct {
	// ContextFree leaves contexts and code out of the memory limit.
	ContextFree bool
	// KeepDeepbind leaves RTLD_DEEPBIND as programs set it.
	KeepDeepbind bool
	// StandIn puts the library in the place of the driver's own as well.
	StandIn bool
	// Oversubscribe takes memory that the card has not got from the host.
	Oversubscribe bool
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

// StandIn is a file in the place of one of the driver's libraries, which stays
// beside it as <library>.driver.
type StandIn struct {
	// Library is the driver's, without its version, such as libcuda.so.
	Library string
	Host    string
}

// Hook is a program of the host that the container runtime runs once the container's root is there,
// with the OCI state on its standard input. A container whose hook fails does not start.
type Hook struct {
	Path string
	// Args are without the program's name.
	Args []string
}

// Variable is one environment variable.
type Variable struct {
	Name, Value string
}

// Injection is what a container needs, as plain values; rendering is elsewhere.
// Two injections of the same claim are equal.
type Injection struct {
	// Devices are the devices whose driver nodes and libraries the container sees,
	// one per device of the claim and in its order: whole devices ("GPU-..."), or
	// MIG devices ("MIG-..."), each with its parent's node and its own capabilities.
	Devices []sharing.DeviceID
	// Env replaces what the pod sets. It is sorted by name.
	Env []Variable
	// Mounts are in the order in which they must be made.
	Mounts []Mount
	// StandIns take the place of libraries of the driver.
	StandIns []StandIn
	// Hooks are run in their order, after those of the driver.
	Hooks []Hook
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

// OwnerLister is an optional power of a preparer that can find what it made without
// the checkpoint.
type OwnerLister interface {
	Preparer
	// Owners are those that something is there for, in no order.
	Owners() ([]sharing.Owner, error)
}

// Abandoner is an optional power of a preparer that mounts something on the host.
type Abandoner interface {
	Preparer
	// Abandon takes away what is mounted, on a host that nobody will look after any more.
	// Containers that run keep what they have. It may be repeated.
	Abandon() error
}

// Runner is an optional power of a preparer that looks after processes of its own.
type Runner interface {
	Preparer
	// Run works until ctx ends, which is no error.
	Run(ctx context.Context) error
}
