// SPDX-License-Identifier: Apache-2.0

package news

// Cause is the kind of reason for which a pod waits: what would have to change for it to be placed.
type Cause uint8

// The causes, in the order in which they are looked for.
const (
	// Gate: the pod has a scheduling gate.
	Gate Cause = iota
	// Settings: no pod gets devices, because the scheduler's configuration cannot be used.
	Settings
	// Request: what the pod asks for has mistakes.
	Request
	// Quota: a limit of the queue's devices.
	Quota
	// Enqueue: a plugin of Volcano does not let the job in.
	Enqueue
	// Gang: too few pods of its gang are there, or fit.
	Gang
	// Nodes: no node has what the pod asks for.
	Nodes
	// Queue: a plugin of Volcano gives the queue nothing more.
	Queue
	// Leaving: it has a node, and waits for other pods to leave it.
	Leaving
	// Turn: nobody has looked at it yet.
	Turn
	// Causes is how many there are.
	Causes
)

// String is the cause as a value of a metric's label.
func (c Cause) String() string {
	names := [Causes]string{
		Gate: "gate", Settings: "settings", Request: "request", Quota: "quota", Enqueue: "enqueue", Gang: "gang", Nodes: "nodes",
		Queue: "queue", Leaving: "leaving", Turn: "turn",
	}
	if c >= Causes {
		return "unknown"
	}
	return names[c]
}
