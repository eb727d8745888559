/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml_ci.c: compute instances, which make a GPU instance usable. Their profiles are named by
 * slices of the GPU instance; NVML's number and the profile's ID are the same here.
 */
#include "nvml_fake.h"

#include <stdio.h>

/* What a GPU instance offers by NVML's number. */
static nvmlReturn_t describe(const struct fg_gpu *gpu, const struct fg_gi *gi, unsigned number, nvmlComputeInstanceProfileInfo_t *out, char *name, size_t size)
{
	struct fg_profile p;
	unsigned slices = fg_ci_slices(number);
	if (number > 7)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = fg_profile_by_number(gpu, gi->profile, &p);
	if (r != NVML_SUCCESS || !slices || slices > gi->compute || slices == 6)
		return NVML_ERROR_NOT_SUPPORTED;
	*out = (nvmlComputeInstanceProfileInfo_t){
		.id = number,
		.sliceCount = slices,
		.instanceCount = gi->compute / slices,
		.multiprocessorCount = p.sms * slices / gi->compute,
		.sharedCopyEngineCount = gi->compute,
		.sharedDecoderCount = gi->compute / 2,
		.sharedJpegCount = (unsigned)p.media,
		.sharedOfaCount = (unsigned)p.media,
	};
	if (slices == gi->compute)
		snprintf(name, size, "MIG %s", p.name);
	else
		snprintf(name, size, "MIG %uc.%s", slices, p.name);
	return NVML_SUCCESS;
}

static nvmlReturn_t profile_info(nvmlGpuInstance_t handle, unsigned number, unsigned engine, nvmlComputeInstanceProfileInfo_t *out, char *name, size_t size)
{
	struct fg_gi *gi;
	if (engine != 0) /* engines are shared, there is no other kind */
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t r = fg_gi_lock(handle, &gi);
	if (r != NVML_SUCCESS)
		return r;
	r = describe(&handle->device->gpu, gi, number, out, name, size);
	fg_unlock();
	return r;
}

DECLARE(nvmlGpuInstanceGetComputeInstanceProfileInfo, nvmlGpuInstance_t handle, unsigned int profile, unsigned int engine, nvmlComputeInstanceProfileInfo_t *out)
{
	char name[96];
	return out ? profile_info(handle, profile, engine, out, name, sizeof name) : NVML_ERROR_INVALID_ARGUMENT;
}

DECLARE(nvmlGpuInstanceGetComputeInstanceProfileInfoV, nvmlGpuInstance_t handle, unsigned int profile, unsigned int engine, nvmlComputeInstanceProfileInfo_v2_t *out)
{
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (out->version != (sizeof *out | 2u << 24))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	return profile_info(handle, profile, engine, &out->info, out->name, sizeof out->name);
}

DECLARE(nvmlGpuInstanceGetComputeInstanceRemainingCapacity, nvmlGpuInstance_t handle, unsigned int id, unsigned int *count)
{
	struct fg_gi *gi;
	int start;
	nvmlReturn_t r = count ? fg_gi_lock(handle, &gi) : NVML_ERROR_INVALID_ARGUMENT;
	if (r != NVML_SUCCESS)
		return r;
	*count = fg_ci_capacity(&handle->device->gpu, gi, fg_ci_slices(id), &start);
	fg_unlock();
	return NVML_SUCCESS;
}

static nvmlReturn_t create(const char *function, nvmlGpuInstance_t handle, unsigned id, int start, nvmlComputeInstance_t *out)
{
	struct fg_gi *gi;
	struct fg_ci *ci;
	nvmlReturn_t r = out ? fg_gi_lock(handle, &gi) : NVML_ERROR_INVALID_ARGUMENT;
	if (r != NVML_SUCCESS)
		return r;
	fg_unlock();
	if ((r = fg_fault(function)) != NVML_SUCCESS || (r = fg_nvml_may_configure()) != NVML_SUCCESS ||
	    (r = fg_gi_lock(handle, &gi)) != NVML_SUCCESS)
		return r;
	r = fg_ci_create(&handle->device->gpu, gi, fg_ci_slices(id), start, &ci);
	if (r == NVML_SUCCESS)
		*out = fg_ci_handle(handle, ci);
	fg_unlock();
	return r;
}

DECLARE(nvmlGpuInstanceCreateComputeInstance, nvmlGpuInstance_t handle, unsigned int id, nvmlComputeInstance_t *out)
{
	return create(__func__, handle, id, -1, out);
}

DECLARE(nvmlGpuInstanceCreateComputeInstanceWithPlacement, nvmlGpuInstance_t handle, unsigned int id, const nvmlComputeInstancePlacement_t *placement, nvmlComputeInstance_t *out)
{
	if (!placement || placement->start > 7 || placement->size != fg_ci_slices(id))
		return NVML_ERROR_INVALID_ARGUMENT;
	return create(__func__, handle, id, (int)placement->start, out);
}

DECLARE(nvmlComputeInstanceDestroy, nvmlComputeInstance_t handle)
{
	struct fg_gi *gi;
	struct fg_ci *ci;
	nvmlReturn_t r = fg_ci_lock(handle, &gi, &ci);
	if (r != NVML_SUCCESS)
		return r;
	fg_unlock();
	if ((r = fg_fault(__func__)) != NVML_SUCCESS || (r = fg_nvml_may_configure()) != NVML_SUCCESS ||
	    (r = fg_ci_lock(handle, &gi, &ci)) != NVML_SUCCESS)
		return r;
	r = fg_ci_destroy(&handle->gi->device->gpu, gi, ci);
	fg_unlock();
	return r;
}

DECLARE(nvmlGpuInstanceGetComputeInstances, nvmlGpuInstance_t handle, unsigned int id, nvmlComputeInstance_t *out, unsigned int *count)
{
	struct fg_gi *gi;
	nvmlReturn_t r = out && count ? fg_gi_lock(handle, &gi) : NVML_ERROR_INVALID_ARGUMENT;
	if (r != NVML_SUCCESS)
		return r;
	*count = 0;
	for (int i = 0; i < FG_MAX_INSTANCES; i++)
		if (gi->ci[i].in_use && gi->ci[i].slices == fg_ci_slices(id))
			out[(*count)++] = fg_ci_handle(handle, &gi->ci[i]);
	fg_unlock();
	return fg_fault(__func__);
}

DECLARE(nvmlGpuInstanceGetComputeInstanceById, nvmlGpuInstance_t handle, unsigned int id, nvmlComputeInstance_t *out)
{
	struct fg_gi *gi;
	nvmlReturn_t r = out ? fg_gi_lock(handle, &gi) : NVML_ERROR_INVALID_ARGUMENT;
	if (r != NVML_SUCCESS)
		return r;
	r = id < FG_MAX_INSTANCES && gi->ci[id].in_use ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
	if (r == NVML_SUCCESS)
		*out = fg_ci_handle(handle, &gi->ci[id]);
	fg_unlock();
	return r;
}

DECLARE(nvmlComputeInstanceGetInfo_v2, nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_t *out)
{
	struct fg_gi *gi;
	struct fg_ci *ci;
	struct fg_gpu mig;
	nvmlReturn_t r = out ? fg_ci_lock(handle, &gi, &ci) : NVML_ERROR_INVALID_ARGUMENT;
	if (r != NVML_SUCCESS)
		return r;
	fg_mig_as_gpu(&handle->gi->device->gpu, gi, ci, &mig);
	*out = (nvmlComputeInstanceInfo_t){
		.device = fg_mig_handle(handle->gi->device, &mig),
		.gpuInstance = handle->gi,
		.id = ci->id,
		.profileId = (unsigned)fg_ci_number(ci->slices),
		.placement = {ci->start, ci->slices},
	};
	fg_unlock();
	return fg_fault(__func__);
}

DECLARE(nvmlComputeInstanceGetInfo, nvmlComputeInstance_t handle, nvmlComputeInstanceInfo_v1_t *out)
{
	nvmlComputeInstanceInfo_t info;
	nvmlReturn_t r = out ? nvmlComputeInstanceGetInfo_v2(handle, &info) : NVML_ERROR_INVALID_ARGUMENT;
	if (r == NVML_SUCCESS)
		*out = (nvmlComputeInstanceInfo_v1_t){info.device, info.gpuInstance, info.id, info.profileId};
	return r;
}
