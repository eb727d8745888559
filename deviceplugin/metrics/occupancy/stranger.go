// SPDX-License-Identifier: Apache-2.0

package occupancy

import (
	"fmt"

	"deviceshare/sharing"
)

// Process is one process that uses a device. Started tells it from a later one with its number.
type Process struct {
	PID     int
	Started uint64 // in ticks since the machine started
	Name    string // of its program
}

// Use is a process that has memory of a device and was given nothing of it.
type Use struct {
	Process
	Occupant
	Device sharing.DeviceID
	// Memory is what it has, context and code included.
	Memory sharing.Bytes
	// Namespace and Pod name the pod, "" for a program of the host and for a pod that is gone.
	Namespace, Pod string
}

// String says what was seen, for an event.
func (u Use) String() string {
	what := fmt.Sprintf("process %d (%s)", u.PID, u.Name)
	switch {
	case u.Kind == Host:
		what += " of the host, outside of all pods,"
	case u.Pod == "":
		what += fmt.Sprintf(" of the pod with UID %s, which this node does not know any more,", u.Owner)
	case u.Container != "":
		what += " of container " + u.Container
	}
	return fmt.Sprintf("%s has %v of device %s, of which it was given nothing", what, u.Memory, u.Device)
}
