/* SPDX-License-Identifier: Apache-2.0 */
/* nvml_gi.c: GPU instances: made, listed, destroyed. Only who may configure does any of it. */
#include "nvml_fake.h"

/* Takes fg_lock and fills the profile when the device is in MIG mode and the caller may configure it. */
static nvmlReturn_t begin(nvmlDevice_t device, unsigned id, struct fg_profile *p)
{
	unsigned current, pending;
	nvmlReturn_t r = fg_nvml_may_configure();
	if (r == NVML_SUCCESS)
		r = fg_profile_by_id(&device->gpu, id, p);
	if (r != NVML_SUCCESS)
		return r;
	fg_lock();
	fg_mig_mode(&device->gpu, &current, &pending);
	if (current)
		return NVML_SUCCESS;
	fg_unlock();
	return NVML_ERROR_NOT_SUPPORTED;
}

DECLARE(nvmlDeviceGetGpuInstanceRemainingCapacity, nvmlDevice_t device, unsigned int id, unsigned int *count)
{
	struct fg_profile p;
	CHECK_DEVICE(device, count);
	nvmlReturn_t r = begin(device, id, &p);
	if (r != NVML_SUCCESS)
		return r;
	*count = fg_gi_capacity(&device->gpu, &p);
	fg_unlock();
	return NVML_SUCCESS;
}

static nvmlReturn_t create(nvmlDevice_t device, unsigned id, int start, unsigned size, nvmlGpuInstance_t *out)
{
	struct fg_profile p;
	struct fg_gi *gi;
	nvmlReturn_t r = fg_is_vgpu(&device->gpu) ? FG_NVML_NO_PERMISSION : begin(device, id, &p);
	if (r != NVML_SUCCESS)
		return r;
	r = start >= 0 && size != p.slices ? NVML_ERROR_INVALID_ARGUMENT : fg_gi_create(&device->gpu, &p, start, &gi);
	if (r == NVML_SUCCESS) {
		*out = fg_gi_handle(device, gi);
		r = *out ? NVML_SUCCESS : NVML_ERROR_MEMORY;
	}
	fg_unlock();
	return r;
}

DECLARE(nvmlDeviceCreateGpuInstance, nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *out)
{
	CHECK_DEVICE(device, out);
	return create(device, id, -1, 0, out);
}

DECLARE(nvmlDeviceCreateGpuInstanceWithPlacement, nvmlDevice_t device, unsigned int id, const nvmlGpuInstancePlacement_t *placement, nvmlGpuInstance_t *out)
{
	CHECK_DEVICE(device, out && placement && placement->start < 64);
	return create(device, id, (int)placement->start, placement->size, out);
}

DECLARE(nvmlGpuInstanceDestroy, nvmlGpuInstance_t handle)
{
	struct fg_gi *gi;
	nvmlReturn_t r = fg_gi_lock(handle, &gi);
	if (r != NVML_SUCCESS)
		return r;
	fg_unlock();
	if (fg_is_vgpu(&handle->device->gpu))
		return FG_NVML_NO_PERMISSION;
	if ((r = fg_fault(__func__)) != NVML_SUCCESS || (r = fg_nvml_may_configure()) != NVML_SUCCESS ||
	    (r = fg_gi_lock(handle, &gi)) != NVML_SUCCESS)
		return r;
	r = fg_gi_destroy(&handle->device->gpu, gi);
	fg_unlock();
	return r;
}

/* The caller's buffer has room for as many as the profile may have, as NVML asks. */
DECLARE(nvmlDeviceGetGpuInstances, nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *out, unsigned int *count)
{
	struct fg_profile p;
	CHECK_DEVICE(device, out && count);
	nvmlReturn_t r = begin(device, id, &p);
	if (r != NVML_SUCCESS)
		return r;
	*count = 0;
	for (unsigned n = 0; n < 15; n++) {
		const struct fg_gi *gi = fg_gi_by_id(device->gpu.minor, n);
		if (gi && gi->profile == p.number)
			out[(*count)++] = fg_gi_handle(device, gi);
	}
	fg_unlock();
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetGpuInstanceById, nvmlDevice_t device, unsigned int id, nvmlGpuInstance_t *out)
{
	unsigned current, pending;
	CHECK_DEVICE(device, out);
	nvmlReturn_t r = fg_nvml_may_configure();
	if (r != NVML_SUCCESS)
		return r;
	fg_lock();
	fg_mig_mode(&device->gpu, &current, &pending);
	const struct fg_gi *gi = fg_gi_by_id(device->gpu.minor, id);
	r = !current ? NVML_ERROR_NOT_SUPPORTED : gi ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
	if (r == NVML_SUCCESS)
		*out = fg_gi_handle(device, gi);
	fg_unlock();
	return r;
}

DECLARE(nvmlGpuInstanceGetInfo, nvmlGpuInstance_t handle, nvmlGpuInstanceInfo_t *out)
{
	struct fg_gi *gi;
	struct fg_profile p;
	nvmlReturn_t r = out ? fg_gi_lock(handle, &gi) : NVML_ERROR_INVALID_ARGUMENT;
	if (r != NVML_SUCCESS)
		return r;
	r = fg_profile_by_number(&handle->device->gpu, gi->profile, &p);
	*out = (nvmlGpuInstanceInfo_t){
		.device = handle->device,
		.id = gi->id,
		.profileId = p.id,
		.placement = {gi->start, gi->slices},
	};
	fg_unlock();
	return r == NVML_SUCCESS ? fg_fault(__func__) : r;
}
