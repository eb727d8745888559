// SPDX-License-Identifier: Apache-2.0

package sharing

// Reason is why a device, or a node, cannot serve a request. The zero value,
// Fits, is no refusal.
type Reason uint8

// The reasons. What is said of each is in reasons.go.
const (
	Fits Reason = iota
	// Unhealthy: the node reports the device as broken.
	Unhealthy
	// WrongMode: the pod named modes and the device is in none of them.
	WrongMode
	// NoBackend: nothing here knows the device's mode.
	NoBackend
	// NotSelected: the pod's model or UUID lists exclude the device.
	NotSelected
	// NotEnoughMemory: less memory is free than asked.
	NotEnoughMemory
	// NotEnoughCores: less compute is free than asked.
	NotEnoughCores
	// TooManyShares: the device carries as many shares as it may.
	TooManyShares
	// HeldExclusively: another container has the whole device, or all of its compute.
	HeldExclusively
	// NotEmpty: the request wants the device to itself and others are on it.
	NotEmpty
	// NoPartitionFits: no free partition of the geometry is large enough.
	NoPartitionFits
	// GroupAlreadyHere: a pod of the same group is on the device and the group
	// wants different devices.
	GroupAlreadyHere
	// Blocked: the shares of some pod on this node could not be read, so what is
	// free is not known.
	Blocked
	// InAnotherMode: devices fit, but only together with devices of another
	// mode; one container is served in one mode.
	InAnotherMode
	// OneDevicePerContainer: the container asks for several devices and the
	// device's mode serves it only one.
	OneDevicePerContainer
	// ChangingMode: the device is on the way into its mode and takes no pods yet.
	ChangingMode
	// PartitionsUnknown: the device is in mode mig and its node does not say which
	// partitions it can have, as nodes with an older device plugin do not.
	PartitionsUnknown
	// OtherUser: a container of another user is on the device, or one of a user that is not known,
	// and the device serves one user at a time.
	OtherUser
	// OtherNamespace: a pod of another namespace is on the device, or one whose namespace is not
	// known, and the device serves one namespace at a time.
	OtherNamespace
	// RootUser: the container runs as root, or as a user that only its image knows, and the device
	// serves no such container.
	RootUser
	// UnevenShares: devices fit, but only together with devices that give another amount; the
	// container asks for an even split.
	UnevenShares
	// WantsToBeAlone: the pod accepts no other beside it, and others are on the device.
	WantsToBeAlone
	// KeptApart: a pod is on the device that does not accept this one beside it, or that this one
	// does not accept.
	KeptApart
	// OtherNUMANode: the pod asks for devices of one NUMA node, and the device is not on the one
	// that was tried, or its node does not say where it is.
	OtherNUMANode
	// Cordoned: people keep new pods off the device.
	Cordoned
	// VirtualMismatch: the pod accepts virtual devices only and this one is not, or the reverse.
	VirtualMismatch
	// Reasons is the number of reasons.
	Reasons
)

// Curable reports whether the removal of other pods could turn this refusal into
// a fit. Eviction for any other reason would be pointless.
func (r Reason) Curable() bool {
	switch r {
	case NotEnoughMemory, NotEnoughCores, TooManyShares, HeldExclusively, NotEmpty,
		NoPartitionFits, GroupAlreadyHere, Blocked, OtherUser, OtherNamespace, UnevenShares, OtherNUMANode, WantsToBeAlone, KeptApart:
		return true
	default:
		return false
	}
}

// Refusals counts, for one request on one node, how many devices were refused
// for each reason. It is an array and not a map so that refusing allocates
// nothing. The zero value refuses nothing.
type Refusals struct {
	// Container is the container whose request could not be met.
	Container string
	// Devices is how many devices the node has, Found how many would do, Wanted
	// how many the request needs.
	Devices, Found, Wanted int
	Count                  [Reasons]uint16
}

// Refused reports whether the request was refused.
func (r *Refusals) Refused() bool { return r.Found < r.Wanted }

// Curable reports whether eviction of other pods could help: enough devices are
// either fit or refused for a curable reason.
func (r *Refusals) Curable() bool {
	n := r.Found
	for reason, devices := range &r.Count {
		if devices > 0 && Reason(reason).Curable() {
			n += int(devices)
		}
	}
	return n >= r.Wanted
}
