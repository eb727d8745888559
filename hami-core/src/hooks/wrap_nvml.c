/* SPDX-License-Identifier: Apache-2.0 */
/* wrap_nvml.c: NVML's view of memory, in step with CUDA's. */
#include "model/limit.h"
#include "memory/account.h"
#include "memory/overflow.h"
#include "shm/region.h"
#include "driver/resolve.h"
#include "settings/settings.h"

/* Index of an NVML device with a memory limit, or -1: then NVML's own figures stand. */
static int limited_device(nvmlDevice_t device)
{
	char uuid[96];
	fn_nvmlDeviceGetUUID get = ORIGINAL(nvmlDeviceGetUUID);
	if (settings_gate() != GATE_LIMITED || !get ||
	    get(device, uuid, sizeof uuid) != NVML_SUCCESS)
		return -1;
	int index = settings_device_by_uuid(uuid);
	return index >= 0 && settings_memory_limit(index) ? index : -1;
}

/* What a program is told of a device with a limit, in bytes. */
struct device_figures {
	uint64_t total, free, used;
};

/* The container's figures in place of the card's. */
static struct device_figures confined_figures(int index, uint64_t card_total, uint64_t card_free)
{
	uint64_t limit = settings_memory_limit(index), used = region_used(index);
	struct device_figures t = {.total = overflow_visible_total(card_total, limit),
				   .free = limit_visible_free(overflow_visible_free(card_free),
							      used, limit)};
	/* contexts are not refused, so more may be in use */
	t.used = used < t.total ? used : t.total;
	return t;
}

nvmlReturn_t hook_nvml_memory_info(original_nvml_memory_info original, nvmlDevice_t device,
				   nvmlMemory_t *memory)
{
	nvmlReturn_t r = original(device, memory);
	int index = r == NVML_SUCCESS ? limited_device(device) : -1;
	if (index < 0)
		return r;
	struct device_figures t = confined_figures(index, memory->total, memory->free);
	memory->total = t.total;
	memory->free = t.free;
	memory->used = t.used;
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
	struct device_figures t = confined_figures(index, memory->total, memory->free);
	uint64_t unused = t.total - t.used;
	memory->total = t.total;
	memory->free = t.free;
	memory->used = t.used;
	memory->reserved = unused < t.free ? 0 : unused - t.free;
	return r;
}

/*
 * What the driver itself limits of a container, by a cgroup. The smaller of both limits is in
 * force.
 */
nvmlReturn_t hook_nvml_memory_limits(original_nvml_memory_limits original, nvmlDevice_t device,
				     nvmlGetMemoryLimits_v1_t *limits)
{
	nvmlReturn_t r = original(device, limits);
	int index = r == NVML_SUCCESS ? limited_device(device) : -1;
	if (index < 0)
		return r;
	uint64_t limit = settings_memory_limit(index);
	limits->hardLimit = limit < limits->hardLimit ? limit : limits->hardLimit;
	limits->softLimit = limit < limits->softLimit ? limit : limits->softLimit;
	limits->currentUsed = region_used(index);
	return r;
}
