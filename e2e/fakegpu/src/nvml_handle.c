/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml_handle.c: what NVML hands out for instances. A handle names its instance by serial
 * number, so one that was destroyed and made again has another, and the old one is refused.
 * The lists only grow; they are read without a lock.
 */
#include "nvml_fake.h"

#include <stdlib.h>
#include <string.h>

static pthread_mutex_t growing = PTHREAD_MUTEX_INITIALIZER;
static struct nvmlGpuInstance_st *gis;
static struct nvmlComputeInstance_st *cis;
static struct nvmlDevice_st *migs;

#define EACH(type, at, list) for (struct type *at = __atomic_load_n(&list, __ATOMIC_ACQUIRE); at; at = at->next)

/* Puts a new element before the others. */
#define PREPEND(list, element)                                          \
	do {                                                            \
		(element)->next = list;                                 \
		__atomic_store_n(&list, element, __ATOMIC_RELEASE);     \
	} while (0)

nvmlGpuInstance_t fg_gi_handle(nvmlDevice_t device, const struct fg_gi *gi)
{
	pthread_mutex_lock(&growing);
	nvmlGpuInstance_t h = gis;
	while (h && h->serial != gi->serial)
		h = h->next;
	if (!h && (h = calloc(1, sizeof *h)) != NULL) {
		h->device = device;
		h->serial = gi->serial;
		PREPEND(gis, h);
	}
	pthread_mutex_unlock(&growing);
	return h;
}

nvmlComputeInstance_t fg_ci_handle(nvmlGpuInstance_t gi, const struct fg_ci *ci)
{
	pthread_mutex_lock(&growing);
	nvmlComputeInstance_t h = cis;
	while (h && h->serial != ci->serial)
		h = h->next;
	if (!h && (h = calloc(1, sizeof *h)) != NULL) {
		h->gi = gi;
		h->serial = ci->serial;
		PREPEND(cis, h);
	}
	pthread_mutex_unlock(&growing);
	return h;
}

nvmlDevice_t fg_mig_handle(nvmlDevice_t parent, const struct fg_gpu *mig)
{
	pthread_mutex_lock(&growing);
	nvmlDevice_t h = migs;
	while (h && h->gpu.ci_serial != mig->ci_serial)
		h = h->next;
	if (!h && (h = calloc(1, sizeof *h)) != NULL) {
		h->gpu = *mig;
		h->parent = parent;
		PREPEND(migs, h);
	}
	pthread_mutex_unlock(&growing);
	return h;
}

nvmlReturn_t fg_mig_handle_by_uuid(const char *uuid, nvmlDevice_t *out)
{
	struct fg_gpu seen[FG_MAX_INSTANCES];
	nvmlDevice_t found = NULL;
	fg_lock();
	for (unsigned i = 0; i < nvml.count && !found; i++) {
		int n = fg_mig_visible(&nvml.device[i].gpu, seen, FG_MAX_INSTANCES);
		for (int k = 0; k < n && !found; k++)
			if (!strcmp(seen[k].uuid, uuid))
				found = fg_mig_handle(&nvml.device[i], &seen[k]);
	}
	fg_unlock();
	if (!found)
		return NVML_ERROR_NOT_FOUND;
	nvmlReturn_t r = fg_nvml_check(found->parent);
	if (r == NVML_SUCCESS)
		*out = found;
	return r;
}

nvmlReturn_t fg_nvml_any(nvmlDevice_t device)
{
	nvmlReturn_t r = fg_nvml_check(device);
	if (r != NVML_ERROR_INVALID_ARGUMENT)
		return r;
	EACH(nvmlDevice_st, h, migs) {
		if (h != device)
			continue;
		r = fg_nvml_check(h->parent);
		fg_lock();
		if (r == NVML_SUCCESS && !fg_ci_by_serial(fg_gi_by_serial(h->gpu.minor, h->gpu.gi_serial), h->gpu.ci_serial))
			r = NVML_ERROR_INVALID_ARGUMENT;
		fg_unlock();
		return r;
	}
	return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t fg_gi_lock(nvmlGpuInstance_t handle, struct fg_gi **gi)
{
	nvmlReturn_t r = fg_nvml_ready() ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_UNINITIALIZED;
	EACH(nvmlGpuInstance_st, h, gis) {
		if (h != handle)
			continue;
		r = fg_nvml_check(h->device);
		if (r != NVML_SUCCESS)
			return r;
		fg_lock();
		*gi = fg_gi_by_serial(h->device->gpu.minor, h->serial);
		if (*gi)
			return NVML_SUCCESS;
		fg_unlock();
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	return r;
}

nvmlReturn_t fg_ci_lock(nvmlComputeInstance_t handle, struct fg_gi **gi, struct fg_ci **ci)
{
	nvmlReturn_t r = fg_nvml_ready() ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_UNINITIALIZED;
	EACH(nvmlComputeInstance_st, h, cis) {
		if (h != handle)
			continue;
		r = fg_gi_lock(h->gi, gi);
		if (r != NVML_SUCCESS)
			return r;
		*ci = fg_ci_by_serial(*gi, h->serial);
		if (*ci)
			return NVML_SUCCESS;
		fg_unlock();
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	return r;
}

nvmlReturn_t fg_nvml_may_configure(void)
{
	return fg_cap_present(FG_CAP_CONFIG) ? NVML_SUCCESS : FG_NVML_NO_PERMISSION;
}

void fg_nvml_make_nodes(void)
{
	fg_lock();
	for (unsigned i = 0; i < nvml.count; i++) {
		const struct fg_gpu *gpu = &nvml.device[i].gpu;
		if (!fg_mig_slices(gpu))
			continue;
		(void)fg_caps_write(fg_dir());
		fg_cap_make(FG_CAP_MONITOR);
		for (int k = 0; k < FG_MAX_INSTANCES; k++) {
			const struct fg_gi *gi = &fg_state()->device[gpu->minor].mig.gi[k];
			if (!gi->in_use)
				continue;
			fg_cap_make(fg_cap(gpu->minor, gi->id, -1));
			for (int c = 0; c < FG_MAX_INSTANCES; c++)
				if (gi->ci[c].in_use)
					fg_cap_make(fg_cap(gpu->minor, gi->id, c));
		}
	}
	fg_unlock();
}
