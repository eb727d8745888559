/* SPDX-License-Identifier: Apache-2.0 */
/* nvml_device.c: handles, identity, memory, topology between devices. */
#define _GNU_SOURCE
#include "nvml_fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

DECLARE(nvmlDeviceGetCount_v2, unsigned int *count)
{
	if (!fg_nvml_ready())
		return NVML_ERROR_UNINITIALIZED;
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = nvml.count;
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetCount, unsigned int *count)
{
	return nvmlDeviceGetCount_v2(count);
}

/* A lost device is not handed out any more: the real library answers GPU_IS_LOST here, too. */
static nvmlReturn_t hand_out(unsigned i, nvmlDevice_t *device)
{
	nvmlReturn_t r = fg_nvml_check(&nvml.device[i]);
	if (r == NVML_SUCCESS)
		*device = &nvml.device[i];
	return r;
}

DECLARE(nvmlDeviceGetHandleByIndex_v2, unsigned int index, nvmlDevice_t *device)
{
	if (!fg_nvml_ready())
		return NVML_ERROR_UNINITIALIZED;
	return device && index < nvml.count ? hand_out(index, device) : NVML_ERROR_INVALID_ARGUMENT;
}

DECLARE(nvmlDeviceGetHandleByIndex, unsigned int index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

DECLARE(nvmlDeviceGetHandleByUUID, const char *uuid, nvmlDevice_t *device)
{
	if (!fg_nvml_ready())
		return NVML_ERROR_UNINITIALIZED;
	if (!uuid || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned i = 0; i < nvml.count; i++)
		if (!strcasecmp(uuid, nvml.device[i].gpu.uuid))
			return hand_out(i, device);
	return strncmp(uuid, "MIG-", 4) ? NVML_ERROR_NOT_FOUND : fg_mig_handle_by_uuid(uuid, device);
}

DECLARE(nvmlDeviceGetHandleByPciBusId_v2, const char *id, nvmlDevice_t *device)
{
	unsigned domain, bus, slot;
	if (!fg_nvml_ready())
		return NVML_ERROR_UNINITIALIZED;
	if (!id || !device || sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned i = 0; i < nvml.count; i++) {
		const struct fg_gpu *g = &nvml.device[i].gpu;
		if (g->domain == domain && g->bus == bus && g->slot == slot)
			return hand_out(i, device);
	}
	return NVML_ERROR_NOT_FOUND;
}

DECLARE(nvmlDeviceGetIndex, nvmlDevice_t device, unsigned int *index)
{
	CHECK_ANY(device, index);
	*index = device->parent ? fg_mig_index(device) : device->index;
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetMinorNumber, nvmlDevice_t device, unsigned int *minor)
{
	CHECK_DEVICE(device, minor);
	*minor = (unsigned)device->gpu.minor;
	return NVML_SUCCESS;
}

/* Answered for a lost device, too: the UUID is known without asking it. */
DECLARE(nvmlDeviceGetUUID, nvmlDevice_t device, char *uuid, unsigned int length)
{
	nvmlReturn_t r = fg_nvml_known(device);
	if (r == NVML_ERROR_INVALID_ARGUMENT)
		r = fg_nvml_any(device);
	return r == NVML_SUCCESS ? fg_nvml_text(uuid, length, device->gpu.uuid) : r;
}

DECLARE(nvmlDeviceGetName, nvmlDevice_t device, char *name, unsigned int length)
{
	CHECK_ANY(device, name);
	return fg_nvml_text(name, length, device->gpu.model);
}

DECLARE(nvmlDeviceGetSerial, nvmlDevice_t device, char *serial, unsigned int length)
{
	CHECK_DEVICE(device, serial);
	return fg_nvml_text(serial, length, device->gpu.uuid + 28);
}

DECLARE(nvmlDeviceGetBrand, nvmlDevice_t device, int *brand)
{
	CHECK_DEVICE(device, brand);
	*brand = 14; /* NVML_BRAND_NVIDIA */
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetCudaComputeCapability, nvmlDevice_t device, int *major, int *minor)
{
	CHECK_ANY(device, major && minor);
	*major = device->gpu.cc_major;
	*minor = device->gpu.cc_minor;
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetArchitecture, nvmlDevice_t device, unsigned int *architecture)
{
	CHECK_DEVICE(device, architecture);
	static const struct { int cc; unsigned architecture; } known[] = {
		{120, 10}, {100, 10}, {90, 9}, {89, 8}, {80, 7}, {75, 6}, {70, 5}, {60, 4}, {50, 3}, {30, 2},
	};
	int cc = device->gpu.cc_major * 10 + device->gpu.cc_minor;
	*architecture = 0xffffffffu;
	for (size_t i = sizeof known / sizeof *known; i-- > 0;)
		if (cc >= known[i].cc)
			*architecture = known[i].architecture;
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetPciInfo_v3, nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	nvmlReturn_t r = fg_nvml_known(device);
	if (r != NVML_SUCCESS)
		return r;
	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	const struct fg_gpu *g = &device->gpu;
	memset(pci, 0, sizeof *pci);
	pci->domain = g->domain;
	pci->bus = g->bus;
	pci->device = g->slot;
	pci->pciDeviceId = 0x20b210de;
	snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", g->domain, g->bus, g->slot);
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", g->domain & 0xffff,
		 g->bus & 0xff, g->slot & 0xff);
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetPciInfo_v2, nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return nvmlDeviceGetPciInfo_v3(device, pci);
}

DECLARE(nvmlDeviceGetPciInfo, nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return nvmlDeviceGetPciInfo_v3(device, pci);
}

static uint64_t used_now(nvmlDevice_t device)
{
	fg_lock();
	uint64_t used = fg_used_of(&device->gpu);
	fg_unlock();
	return used < device->gpu.memory ? used : device->gpu.memory;
}

/* Who was given an instance only may not look at the whole of its device. */
static nvmlReturn_t may_read(nvmlDevice_t device)
{
	unsigned current, pending;
	fg_lock();
	fg_mig_mode(&device->gpu, &current, &pending);
	fg_unlock();
	return device->parent || !current ? NVML_SUCCESS : fg_nvml_may_configure();
}

DECLARE(nvmlDeviceGetMemoryInfo, nvmlDevice_t device, nvmlMemory_t *memory)
{
	CHECK_ANY(device, memory);
	nvmlReturn_t r = may_read(device);
	if (r != NVML_SUCCESS)
		return r;
	memory->total = device->gpu.memory;
	memory->used = used_now(device);
	memory->free = memory->total - memory->used;
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetMemoryInfo_v2, nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	CHECK_ANY(device, memory);
	if (memory->version != (sizeof *memory | 2u << 24))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	nvmlReturn_t r = may_read(device);
	if (r != NVML_SUCCESS)
		return r;
	memory->total = device->gpu.memory;
	memory->used = used_now(device);
	memory->reserved = 0;
	memory->free = memory->total - memory->used;
	return NVML_SUCCESS;
}

/* By device, in this process alone: the machine's cgroups are not modelled. */
static nvmlSetMemoryLimits_v1_t memory_limits[FG_MAX_DEVICES];

DECLARE(nvmlDeviceSetMemoryLimits_v1, nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
{
	CHECK_DEVICE(device, limits && limits->nameSpace);
	memory_limits[device->gpu.minor] = *limits;
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetMemoryLimits_v1, nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
	CHECK_DEVICE(device, limits && limits->nameSpace);
	const nvmlSetMemoryLimits_v1_t *set = &memory_limits[device->gpu.minor];
	limits->softLimit = set->softLimit;
	limits->hardLimit = set->nameSpace ? set->hardLimit : NVML_DEVICE_MEMORY_LIMIT_MAX;
	limits->currentUsed = used_now(device);
	return NVML_SUCCESS;
}

/* The real library answers only where GPUs are NUMA nodes; the fake tells the topology's numa=. */
DECLARE(nvmlDeviceGetNumaNodeId, nvmlDevice_t device, unsigned int *node)
{
	CHECK_DEVICE(device, node);
	if (device->gpu.numa < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	*node = (unsigned)device->gpu.numa;
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetMemoryAffinity, nvmlDevice_t device, unsigned int words, unsigned long *nodes, unsigned int scope)
{
	CHECK_DEVICE(device, nodes && words && scope <= 1);
	if (device->gpu.numa < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	memset(nodes, 0, words * sizeof *nodes);
	nodes[0] = 1UL << device->gpu.numa;
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetTopologyCommonAncestor, nvmlDevice_t one, nvmlDevice_t other, int *level)
{
	CHECK_DEVICE(one, level);
	CHECK_DEVICE(other, level);
	*level = one == other ? 0 : one->gpu.numa >= 0 && one->gpu.numa == other->gpu.numa ? 40 : 50;
	return NVML_SUCCESS;
}

/* The other device of the same nvlink= group that a link leads to, visible here or not. A group
 * "1*4" has four links between any two devices, and those of one peer are neighbours. */
static const struct fg_gpu *peer(nvmlDevice_t device, unsigned link)
{
	const char *times = strchr(device->gpu.nvlink, '*');
	int each = times ? atoi(times + 1) : 1;
	link /= each > 0 ? each : 1;
	for (int i = 0; i < nvml.topology.count; i++) {
		const struct fg_gpu *g = &nvml.topology.gpu[i];
		if (g->minor != device->gpu.minor && !strcmp(g->nvlink, device->gpu.nvlink) && link-- == 0)
			return g;
	}
	return NULL;
}

DECLARE(nvmlDeviceGetNvLinkState, nvmlDevice_t device, unsigned int link, int *active)
{
	CHECK_DEVICE(device, active && link < 18);
	if (!*device->gpu.nvlink)
		return NVML_ERROR_NOT_SUPPORTED;
	*active = peer(device, link) != NULL;
	return NVML_SUCCESS;
}

DECLARE(nvmlDeviceGetNvLinkRemotePciInfo_v2, nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
	CHECK_DEVICE(device, pci && link < 18);
	const struct fg_gpu *g = *device->gpu.nvlink ? peer(device, link) : NULL;
	if (!g)
		return NVML_ERROR_NOT_SUPPORTED;
	struct nvmlDevice_st *found = NULL;
	for (unsigned i = 0; i < nvml.count; i++)
		if (nvml.device[i].gpu.minor == g->minor)
			found = &nvml.device[i];
	return found ? nvmlDeviceGetPciInfo_v3(found, pci) : NVML_ERROR_NOT_SUPPORTED;
}

DECLARE(nvmlDeviceGetNvLinkRemotePciInfo, nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
	return nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, pci);
}
