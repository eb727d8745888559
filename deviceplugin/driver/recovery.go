// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/binary"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// checkRecovery asks whether the device waits for somebody to repair it. It may answer everything
// meanwhile, and lose the work of whoever uses it. Drivers before 555 do not know the question
// about the action, devices before Ampere not the one about rows. Rows that wait to be remapped
// are no reason: NVIDIA says that new work may start on such a device ("GPU Memory Error
// Management", Error Recovery and Response Flags).
func (d *nvmlDevice) checkRecovery() error {
	fields := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if ret := d.handle.GetFieldValues(fields); ret == nvml.SUCCESS && nvml.Return(fields[0].NvmlReturn) == nvml.SUCCESS {
		action := nvml.DeviceGpuRecoveryAction(binary.NativeEndian.Uint32(fields[0].Value[:4]))
		if what := recoveryAdvice(action); what != "" {
			return fmt.Errorf("%w, says the driver: %s", ErrRepair, what)
		}
	}
	if _, _, _, failed, ret := d.handle.GetRemappedRows(); ret == nvml.SUCCESS && failed {
		return fmt.Errorf("%w: rows of its memory could not be remapped; replace it", ErrRepair)
	}
	return nil
}

// recoveryAdvice is what a person has to do by the driver's word; "" if nothing.
func recoveryAdvice(action nvml.DeviceGpuRecoveryAction) string {
	switch action {
	case nvml.GPU_RECOVERY_ACTION_NONE:
		return ""
	case nvml.GPU_RECOVERY_ACTION_GPU_RESET:
		return "end what runs on it, then nvidia-smi --gpu-reset"
	case nvml.GPU_RECOVERY_ACTION_NODE_REBOOT:
		return "reboot the node"
	case nvml.GPU_RECOVERY_ACTION_DRAIN_P2P:
		return "end what reaches other devices from it (peer to peer)"
	case nvml.GPU_RECOVERY_ACTION_DRAIN_AND_RESET:
		return "let what runs on it end, then nvidia-smi --gpu-reset"
	}
	return fmt.Sprintf("recovery action %d", action)
}
