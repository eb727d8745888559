/* SPDX-License-Identifier: Apache-2.0 */
/* wrap_nvml.c: NVML's view of memory, in step with CUDA's. */
#include "model/limit.h"
#include "memory/account.h"
#include "memory/overflow.h"
#include "shm/region.h"
#include "driver/resolve.h"
#include "settings/runtime.h"

/* Index of an NVML device with a memory limit, or -1: then NVML's own figures stand. */
static int limited_device(nvmlDevice_t device)
{
	char uuid[96];
	fn_nvmlDeviceGetUUID get = ORIGINAL(nvmlDeviceGetUUID);
	if (runtime_gate() != GATE_LIMITED || !get ||
	    get(device, uuid, sizeof uuid) != NVML_SUCCESS)
		return -1;
	int index = runtime_device_by_uuid(uuid);
	return index >= 0 && runtime_memory_limit(index) ? index : -1;
}

nvmlReturn_t hook_nvml_memory_info(original_nvml_memory_info original, nvmlDevice_t device,
				   nvmlMemory_t *memory)
{
	nvmlReturn_t r = original(device, memory);
	int index = r == NVML_SUCCESS ? limited_device(device) : -1;
	if (index < 0)
		return r;
	uint64_t limit = runtime_memory_limit(index), used = region_used(index);
	memory->total = overflow_total(memory->total, limit);
	memory->free = limit_free(overflow_free(memory->free), used, limit);
	/* contexts are not refused, so more may be in use */
	memory->used = used < memory->total ? used : memory->total;
	return r;
}

/*
 * The version 2 has a fourth figure, so that they add up: what the container could use and others
 * have taken.
 */
nvmlReturn_t hook_nvml_memory_info_v2(original_nvml_memory_info_v2 original, nvmlDevice_t device,
				      nvmlMemory_v2_t *memory)
{
	nvmlReturn_t r = original(device, memory);
	int index = r == NVML_SUCCESS ? limited_device(device) : -1;
	if (index < 0)
		return r;
	uint64_t limit = runtime_memory_limit(index), used = region_used(index);
	memory->total = overflow_total(memory->total, limit);
	memory->free = limit_free(overflow_free(memory->free), used, limit);
	memory->used = used < memory->total ? used : memory->total;
	memory->reserved = memory->total - memory->used < memory->free
				   ? 0
				   : memory->total - memory->used - memory->free;
	return r;
}
