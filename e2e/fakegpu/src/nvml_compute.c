/* SPDX-License-Identifier: Apache-2.0 */
/* nvml_compute.c: the compute mode, as `nvidia-smi -c` sets it. */
#include "mps_mode.h"
#include "nvml_fake.h"

#include <unistd.h>

enum { NO_PERMISSION = 4 }; /* NVML_ERROR_NO_PERMISSION */

FG_EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, int *mode);
FG_EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, int *mode)
{
	CHECK_DEVICE(device, mode);
	*mode = fg_compute_mode(fg_dir(), device->gpu.minor);
	return NVML_SUCCESS;
}

FG_EXPORT nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, int mode);
FG_EXPORT nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, int mode)
{
	CHECK_DEVICE(device, mode == FG_MODE_DEFAULT || mode == FG_MODE_PROHIBITED || mode == FG_MODE_EXCLUSIVE_PROCESS);
	if (geteuid() != 0 || fg_is_vgpu(&device->gpu))
		return NO_PERMISSION;
	return fg_set_compute_mode(fg_dir(), device->gpu.minor, mode) ? NVML_ERROR_UNKNOWN : NVML_SUCCESS;
}
