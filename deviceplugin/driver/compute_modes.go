// SPDX-License-Identifier: Apache-2.0

package driver

import "deviceshare/sharing"

// ComputeMode says which processes may have contexts on a device, in NVML's
// numbers.
type ComputeMode int

// The modes that matter here. In ExclusiveProcess one process at a time may have
// contexts: the MPS server.
const (
	DefaultComputeMode ComputeMode = 0
	ExclusiveProcess   ComputeMode = 3
)

// ComputeModes reads and sets compute modes. Implementations are safe for concurrent use.
type ComputeModes interface {
	ComputeMode(id sharing.DeviceID) (ComputeMode, error)
	SetComputeMode(id sharing.DeviceID, mode ComputeMode) error
}
