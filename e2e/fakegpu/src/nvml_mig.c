/* SPDX-License-Identifier: Apache-2.0 */
/* nvml_mig.c: MIG mode, profiles and where an instance of each may start. */
#include "nvml_fake.h"

#include <stdio.h>
#include <string.h>

DECLARE(nvmlDeviceGetMigMode, nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	CHECK_DEVICE(device, current && pending);
	if (device->gpu.mig == FG_MIG_NONE)
		return NVML_ERROR_NOT_SUPPORTED;
	fg_lock();
	fg_mig_mode(&device->gpu, current, pending);
	fg_unlock();
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceSetMigMode, nvmlDevice_t device, unsigned int mode, nvmlReturn_t *activation)
{
	CHECK_DEVICE(device, activation && mode <= 1);
	nvmlReturn_t r = fg_is_vgpu(&device->gpu) && device->gpu.mig ? FG_NVML_NO_PERMISSION : fg_nvml_may_configure();
	if (r != NVML_SUCCESS)
		return r;
	fg_lock();
	r = fg_mig_set_mode(&device->gpu, mode, activation);
	fg_unlock();
	return r;
}

static int enabled(nvmlDevice_t device)
{
	unsigned current, pending;
	fg_lock();
	fg_mig_mode(&device->gpu, &current, &pending);
	fg_unlock();
	return fg_mig_slices(&device->gpu) && current;
}

DECLARE(nvmlDeviceGetMaxMigDeviceCount, nvmlDevice_t device, unsigned int *count)
{
	CHECK_DEVICE(device, count);
	*count = enabled(device) ? fg_mig_compute(&device->gpu) : 0;
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceIsMigDeviceHandle, nvmlDevice_t device, unsigned int *is_mig)
{
	CHECK_ANY(device, is_mig);
	*is_mig = device->parent != NULL;
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetMigDeviceHandleByIndex, nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
	CHECK_DEVICE(device, mig && index < FG_MAX_INSTANCES);
	struct fg_gpu seen[FG_MAX_INSTANCES];
	if (!enabled(device))
		return NVML_ERROR_NOT_SUPPORTED;
	fg_lock();
	int n = fg_mig_visible(&device->gpu, seen, FG_MAX_INSTANCES);
	fg_unlock();
	if ((int)index >= n)
		return NVML_ERROR_NOT_FOUND;
	*mig = fg_mig_handle(device, &seen[index]);
	return *mig ? NVML_SUCCESS : NVML_ERROR_MEMORY;
}

unsigned fg_mig_index(nvmlDevice_t mig)
{
	struct fg_gpu seen[FG_MAX_INSTANCES];
	fg_lock();
	int n = fg_mig_visible(&mig->parent->gpu, seen, FG_MAX_INSTANCES), i = 0;
	fg_unlock();
	while (i < n && seen[i].ci_serial != mig->gpu.ci_serial)
		i++;
	return (unsigned)i;
}

DECLARE(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, nvmlDevice_t mig, nvmlDevice_t *device)
{
	CHECK_ANY(mig, device);
	if (!mig->parent)
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = mig->parent;
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetGpuInstanceId, nvmlDevice_t device, unsigned int *id)
{
	CHECK_ANY(device, id);
	if (!device->parent)
		return NVML_ERROR_NOT_SUPPORTED;
	*id = device->gpu.gi;
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetComputeInstanceId, nvmlDevice_t device, unsigned int *id)
{
	CHECK_ANY(device, id);
	if (!device->parent)
		return NVML_ERROR_NOT_SUPPORTED;
	*id = device->gpu.ci;
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetAttributes_v2, nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
	CHECK_ANY(device, out);
	if (!device->parent)
		return NVML_ERROR_NOT_SUPPORTED;
	fg_lock();
	struct fg_gi *gi = fg_gi_by_serial(device->gpu.minor, device->gpu.gi_serial);
	struct fg_ci *ci = fg_ci_by_serial(gi, device->gpu.ci_serial);
	if (ci)
		*out = (nvmlDeviceAttributes_t){
			.multiprocessorCount = (unsigned)device->gpu.sms,
			.sharedCopyEngineCount = gi->compute,
			.sharedDecoderCount = gi->compute / 2,
			.gpuInstanceSliceCount = gi->compute,
			.computeInstanceSliceCount = ci->slices,
			.memorySizeMB = device->gpu.memory >> 20,
		};
	fg_unlock();
	return ci ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

DECLARE(nvmlDeviceGetAttributes, nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
	return nvmlDeviceGetAttributes_v2(device, out);
}

static void describe(const struct fg_profile *p, nvmlGpuInstanceProfileInfo_t *out)
{
	*out = (nvmlGpuInstanceProfileInfo_t){
		.id = p->id,
		.sliceCount = p->compute,
		.instanceCount = p->max,
		.multiprocessorCount = p->sms,
		.copyEngineCount = p->compute,
		.decoderCount = p->media ? 1 : p->compute / 2,
		.jpegCount = p->media || p->compute >= 7,
		.ofaCount = p->media || p->compute >= 7,
		.memorySizeMB = p->mib,
	};
}

/* The profile by NVML's enumeration, which has 17. */
static nvmlReturn_t lookup(nvmlDevice_t device, unsigned number, struct fg_profile *p)
{
	return number > 0x10 ? NVML_ERROR_INVALID_ARGUMENT : fg_profile_by_number(&device->gpu, number, p);
}

DECLARE(nvmlDeviceGetGpuInstanceProfileInfo, nvmlDevice_t device, unsigned int profile, nvmlGpuInstanceProfileInfo_t *out)
{
	struct fg_profile p;
	CHECK_DEVICE(device, out);
	nvmlReturn_t r = lookup(device, profile, &p);
	if (r == NVML_SUCCESS)
		describe(&p, out);
	return r;
}

DECLARE(nvmlDeviceGetGpuInstanceProfileInfoV, nvmlDevice_t device, unsigned int profile, nvmlGpuInstanceProfileInfo_v2_t *out)
{
	struct fg_profile p;
	nvmlGpuInstanceProfileInfo_t info;
	CHECK_DEVICE(device, out);
	if (out->version != (sizeof *out | 2u << 24))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	nvmlReturn_t r = lookup(device, profile, &p);
	if (r != NVML_SUCCESS)
		return r;
	describe(&p, &info);
	memcpy(&out->id, &info.id, 10 * sizeof(unsigned));
	out->memorySizeMB = info.memorySizeMB;
	snprintf(out->name, sizeof out->name, "MIG %s", p.name);
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetGpuInstancePossiblePlacements_v2, nvmlDevice_t device, unsigned int id, nvmlGpuInstancePlacement_t *out, unsigned int *count)
{
	struct fg_profile p;
	CHECK_DEVICE(device, count);
	nvmlReturn_t r = fg_profile_by_id(&device->gpu, id, &p);
	if (r != NVML_SUCCESS)
		return r;
	unsigned n = 0;
	for (; n < FG_STARTS && p.starts[n] >= 0; n++)
		if (out)
			out[n] = (nvmlGpuInstancePlacement_t){(unsigned)p.starts[n], p.slices};
	*count = n;
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetGpuInstancePossiblePlacements, nvmlDevice_t device, unsigned int id, nvmlGpuInstancePlacement_t *out, unsigned int *count)
{
	return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, id, out, count);
}
