/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_process.c: NVML's lists of processes, from the region: the container's own, by the
 * PIDs they have there, with the bytes that add up to what is said to be used. NVML itself
 * names processes by host PIDs with some drivers, and by none with others.
 */
#include "memory/account.h"
#include "shm/region.h"
#include "driver/resolve.h"
#include "settings/settings.h"

#include "platform/prim.h"

#define NO_INSTANCE 0xffffffffu /* not on a MIG instance */

/* Index of an NVML device in the limits, or -1: then NVML's own list stands. */
static int listed_device(nvmlDevice_t device)
{
	char uuid[96];
	fn_nvmlDeviceGetUUID get = ORIGINAL(nvmlDeviceGetUUID);
	if (settings_gate() != GATE_LIMITED || !get ||
	    get(device, uuid, sizeof uuid) != NVML_SUCCESS)
		return -1;
	return settings_device_by_uuid(uuid);
}

/* NVML's answer to "how many": codes of a working device mean that ours may be given instead. */
static int may_be_replaced(nvmlReturn_t r)
{
	return r == NVML_SUCCESS || r == NVML_ERROR_INSUFFICIENT_SIZE ||
	       r == NVML_ERROR_NOT_SUPPORTED;
}

/* As NVML: the number there are, in any case; INSUFFICIENT_SIZE when they were more than fit. */
static nvmlReturn_t report_count(unsigned int *count, unsigned int there)
{
	unsigned int room = *count;
	*count = there;
	return there > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

/* The container's processes on a device. Not on the stack: that of a thread may have 16 KiB. */
struct process_list {
	struct region_process *found; /* NULL: there is no memory for it */
	unsigned there;
};
#define LIST_BYTES (HAMI_PROCESSES * sizeof(struct region_process))

static struct process_list list_processes(int index)
{
	struct process_list l = {prim_map(-1, LIST_BYTES), 0};
	l.there = region_processes(index, l.found, l.found ? HAMI_PROCESSES : 0);
	return l;
}

static void drop_list(const struct process_list *l)
{
	if (l->found)
		prim_unmap(l->found, LIST_BYTES);
}

/* How many of a list can be told where `room` fit. */
static unsigned told_of(const struct process_list *l, unsigned room)
{
	return !l->found ? 0 : l->there < room ? l->there : room;
}

nvmlReturn_t hook_nvml_compute(original_nvml_compute original, nvmlDevice_t device,
			       unsigned int *count, nvmlProcessInfo_v2_t *out)
{
	unsigned int none = 0;
	int index = count ? listed_device(device) : -1;
	if (index < 0 || (*count && !out))
		return original(device, count, out);
	nvmlReturn_t r = original(device, &none, NULL);
	if (!may_be_replaced(r))
		return r;
	struct process_list l = list_processes(index);
	for (unsigned i = 0; i < told_of(&l, *count); i++)
		out[i] = (nvmlProcessInfo_v2_t){.pid = (unsigned)l.found[i].pid,
						.usedGpuMemory = l.found[i].bytes,
						.gpuInstanceId = NO_INSTANCE,
						.computeInstanceId = NO_INSTANCE};
	drop_list(&l);
	return report_count(count, l.there);
}

nvmlReturn_t hook_nvml_compute_v1(original_nvml_compute_v1 original, nvmlDevice_t device,
				  unsigned int *count, nvmlProcessInfo_v1_t *out)
{
	unsigned int none = 0;
	int index = count ? listed_device(device) : -1;
	if (index < 0 || (*count && !out))
		return original(device, count, out);
	nvmlReturn_t r = original(device, &none, NULL);
	if (!may_be_replaced(r))
		return r;
	struct process_list l = list_processes(index);
	for (unsigned i = 0; i < told_of(&l, *count); i++)
		out[i] = (nvmlProcessInfo_v1_t){.pid = (unsigned)l.found[i].pid,
						.usedGpuMemory = l.found[i].bytes};
	drop_list(&l);
	return report_count(count, l.there);
}

#define MODE_COMPUTE 0

/*
 * The newer list of any kind. Its first version only: of a later one the driver says what it says
 * of no list.
 */
nvmlReturn_t hook_nvml_details(original_nvml_details original, nvmlDevice_t device,
			       nvmlProcessDetailList_t *list)
{
	int index = list ? listed_device(device) : -1;
	if (index < 0)
		return original(device, list);
	nvmlProcessDetailList_t none = {.version = list->version, .mode = list->mode};
	nvmlReturn_t r = original(device, &none);
	if (!may_be_replaced(r))
		return r;
	if (list->version != (sizeof *list | 1u << 24))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (list->mode > 2 || (list->numProcArrayEntries && !list->procArray))
		return NVML_ERROR_INVALID_ARGUMENT;
	struct process_list l = {NULL, 0};
	if (list->mode == MODE_COMPUTE)
		l = list_processes(index);
	for (unsigned i = 0; i < told_of(&l, list->numProcArrayEntries); i++)
		list->procArray[i] = (nvmlProcessDetail_v1_t){.pid = (unsigned)l.found[i].pid,
							      .usedGpuMemory = l.found[i].bytes,
							      .gpuInstanceId = NO_INSTANCE,
							      .computeInstanceId = NO_INSTANCE};
	drop_list(&l);
	return report_count(&list->numProcArrayEntries, l.there);
}

/*
 * Time on the device by process is NVML's own measurement, without the processes of others. Where
 * NVML names processes by host PIDs none is ours, and there are no samples.
 */
nvmlReturn_t hook_nvml_utilisation(original_nvml_utilisation original, nvmlDevice_t device,
				   nvmlProcessUtilizationSample_t *out, unsigned int *count,
				   unsigned long long since)
{
	nvmlReturn_t r = original(device, out, count, since);
	unsigned int kept = 0;
	if (r != NVML_SUCCESS || !out || !count || listed_device(device) < 0)
		return r;
	for (unsigned int i = 0; i < *count; i++)
		if (region_has_process((int)out[i].pid))
			out[kept++] = out[i];
	*count = kept;
	return kept ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t hook_nvml_utilisations(original_nvml_utilisations original, nvmlDevice_t device,
				    nvmlProcessesUtilizationInfo_t *list)
{
	nvmlReturn_t r = original(device, list);
	unsigned int kept = 0;
	if (r != NVML_SUCCESS || !list || !list->procUtilArray || listed_device(device) < 0)
		return r;
	for (unsigned int i = 0; i < list->processSamplesCount; i++)
		if (region_has_process((int)list->procUtilArray[i].pid))
			list->procUtilArray[kept++] = list->procUtilArray[i];
	list->processSamplesCount = kept;
	return kept ? NVML_SUCCESS : NVML_ERROR_NOT_FOUND;
}

/*
 * Graphics and MPS: every process of the container is in the list above, and nobody else is to be
 * seen.
 */
nvmlReturn_t hook_nvml_others(original_nvml_others original, nvmlDevice_t device,
			      unsigned int *count, nvmlProcessInfo_v2_t *out)
{
	unsigned int none = 0;
	if (!count || listed_device(device) < 0)
		return original(device, count, out);
	nvmlReturn_t r = original(device, &none, NULL);
	return may_be_replaced(r) ? report_count(count, 0) : r;
}

nvmlReturn_t hook_nvml_others_v1(original_nvml_others_v1 original, nvmlDevice_t device,
				 unsigned int *count, nvmlProcessInfo_v1_t *out)
{
	unsigned int none = 0;
	if (!count || listed_device(device) < 0)
		return original(device, count, out);
	nvmlReturn_t r = original(device, &none, NULL);
	return may_be_replaced(r) ? report_count(count, 0) : r;
}
