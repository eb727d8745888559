// SPDX-License-Identifier: Apache-2.0

package node

// Kind is what a device's condition is, without its detail.
type Kind uint8

// The conditions. When several apply, the last one of this list is the device's.
const (
	// Ready: the device works and is in the mode the administrator wants.
	Ready Kind = iota
	// Unchecked: nobody has looked yet whether the device is in its mode.
	Unchecked
	// Waiting: pods hold the device in another mode; it changes when they are gone.
	Waiting
	// Changing: the device is being brought into its mode.
	Changing
	// Failing: the last attempt to bring the device into its mode failed; it is
	// repeated.
	Failing
	// NeedsAdministrator: only a person can bring the device into its mode.
	NeedsAdministrator
	// Interrupted: something beside the device that its mode needs does not work now, or
	// somebody else does the mode's work on the node.
	Interrupted
	// Unsupported: this node cannot offer the device in its mode.
	Unsupported
	// ConfigUnknown: it is not known what the administrator wants.
	ConfigUnknown
	// Unenforced: containers of this node may start without what they are given, and without its
	// limits.
	Unenforced
	// Hidden: the administrator does not offer the device.
	Hidden
	// Broken: the device does not answer, or has reported a critical error.
	Broken
	// Absent: the driver does not list the device any more.
	Absent
	kinds = iota
)

// String is the kind for scenarios and logs.
func (k Kind) String() string {
	return [kinds]string{
		"Ready", "Unchecked", "Waiting", "Changing", "Failing", "NeedsAdministrator",
		"Interrupted", "Unsupported", "ConfigUnknown", "Unenforced", "Hidden", "Broken", "Absent",
	}[k]
}

// Condition is how it stands with one device: the kind, and for people why. A
// device that is Ready has no detail.
type Condition struct {
	Kind   Kind
	Detail string
}

// Permissions is what may be done with a device in some condition.
type Permissions struct {
	// Place: the scheduler may place new pods on it; it is published as healthy.
	Place bool
	// Begin: a container may start whose pod has no prepared container yet.
	Begin bool
	// Resume: a container may start whose pod has prepared containers already.
	Resume bool
	// Change: the device may be looked at and brought into its mode.
	Change bool
}

// May returns what may be done with a device in this condition. It is the only
// place that decides this.
func (k Kind) May() Permissions {
	const yes, no = true, false
	return [kinds]Permissions{
		//                   Place Begin Resume Change
		Ready:              {yes, yes, yes, yes},
		Unchecked:          {no, no, yes, yes},
		Waiting:            {no, no, yes, yes},
		Changing:           {no, no, yes, yes},
		Failing:            {no, no, yes, yes},
		NeedsAdministrator: {no, no, yes, yes},
		Interrupted:        {no, no, yes, no},
		Unsupported:        {no, no, yes, no},
		ConfigUnknown:      {no, no, yes, no},
		Unenforced:         {no, no, no, no},
		Hidden:             {no, no, no, no},
		Broken:             {no, no, no, no},
		Absent:             {no, no, no, no},
	}[k]
}
