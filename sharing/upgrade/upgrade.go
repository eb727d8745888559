// SPDX-License-Identifier: Apache-2.0

// Package upgrade reads from a node's labels how far NVIDIA's GPU operator is with replacing the
// node's driver. Device plugin and scheduler go by it.
package upgrade

// Labels of nodes and pods by which the GPU operator works.
const (
	// StateLabel is how far it is with a node. Its values are those of NVIDIA/k8s-operator-libs,
	// pkg/upgrade/consts.go.
	StateLabel = "nvidia.com/gpu-driver-upgrade-state"
	// SkipLabel on a pod, with the value "true", spares it.
	SkipLabel = "nvidia.com/gpu-driver-upgrade-drain.skip"
)

// Phase is what an upgrade means for the pods of a node.
type Phase uint8

// The phases.
const (
	// None: there is no upgrade, it is over, or it has failed.
	None Phase = iota
	// Planned: the driver will be replaced, and nothing is done yet.
	Planned
	// Closed: no pod with devices is to start.
	Closed
	// Emptying: no such pod is to start, and those that run have to leave, because the driver
	// cannot be unloaded while they hold devices.
	Emptying
)

// PhaseOf returns the phase of a node with these labels. A state that is not known is None: it
// is no reason to evict anybody.
func PhaseOf(labels map[string]string) Phase {
	switch labels[StateLabel] {
	case "upgrade-required":
		return Planned
	case "cordon-required", "wait-for-jobs-required", "node-maintenance-required", "post-maintenance-required",
		"validation-required", "uncordon-required":
		return Closed
	case "pod-deletion-required", "drain-required", "pod-restart-required":
		return Emptying
	}
	return None
}

// TakesPods reports whether pods with devices may start in the phase.
func (p Phase) TakesPods() bool { return p < Closed }
