/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "log.h"
#include "region.h"
#include "resolve.h"

struct named {
	nvmlPciInfo_t pci;
	char uuid[64];
};

static int by_pci(const void *a, const void *b)
{
	const nvmlPciInfo_t *x = &((const struct named *)a)->pci, *y = &((const struct named *)b)->pci;
	if (x->domain != y->domain)
		return x->domain < y->domain ? -1 : 1;
	if (x->bus != y->bus)
		return x->bus < y->bus ? -1 : 1;
	return x->device < y->device ? -1 : x->device > y->device;
}

/* All devices of the container as NVML knows them: CUDA_VISIBLE_DEVICES does not touch that list. */
static int list_devices(struct named *out)
{
	fn_nvmlDeviceGetCount_v2 count_devices = ORIGINAL(nvmlDeviceGetCount_v2);
	fn_nvmlDeviceGetHandleByIndex_v2 handle = ORIGINAL(nvmlDeviceGetHandleByIndex_v2);
	fn_nvmlDeviceGetUUID uuid = ORIGINAL(nvmlDeviceGetUUID);
	fn_nvmlDeviceGetPciInfo_v3 pci = ORIGINAL(nvmlDeviceGetPciInfo_v3);
	unsigned count = 0;
	if (!count_devices || !handle || !uuid || !pci || count_devices(&count) || count > HAMI_DEVICES)
		return 0;
	for (unsigned i = 0; i < count; i++) {
		nvmlDevice_t device;
		if (handle(i, &device) || uuid(device, out[i].uuid, sizeof out[i].uuid) || pci(device, &out[i].pci))
			return 0;
	}
	qsort(out, count, sizeof *out, by_pci);
	return (int)count;
}

/* Gives the environment's numbers their UUIDs. */
static void name_devices(struct limits *limits)
{
	struct named devices[HAMI_DEVICES];
	fn_nvmlInit_v2 init = ORIGINAL(nvmlInit_v2);
	fn_nvmlShutdown shutdown = ORIGINAL(nvmlShutdown);
	if (limits->source != LIMITS_ENVIRONMENT || limits->device[0].uuid[0] || !init || init() != NVML_SUCCESS)
		return;
	int count = list_devices(devices);
	for (int i = 0; i < count; i++) {
		snprintf(limits->device[i].uuid, sizeof limits->device[i].uuid, "%.63s", devices[i].uuid);
		region_name_device(i, limits->device[i].uuid);
	}
	if (shutdown)
		shutdown();
}

/* A device that cannot be told apart gets the tightest limit there is: too little rather than too much. */
static int tightest(const struct limits *limits, int otherwise)
{
	int best = -1;
	for (int i = 0; i < HAMI_DEVICES; i++) {
		const struct limits_device *d = &limits->device[i];
		if (d->memory && (best < 0 || d->memory < limits->device[best].memory))
			best = i;
	}
	return best < 0 ? otherwise : best;
}

int device_index_of_uuid(struct limits *limits, const char *uuid)
{
	name_devices(limits);
	return limits_find(limits, uuid);
}

int device_index(struct limits *limits, CUdevice ordinal)
{
	CUuuid raw;
	char text[48];
	const unsigned char *b = raw.bytes;
	fn_cuDeviceGetUuid get = ORIGINAL(cuDeviceGetUuid);
	if (!get || get(&raw, ordinal) != CUDA_SUCCESS)
		return -2;
	snprintf(text, sizeof text, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0],
		 b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
	int index = device_index_of_uuid(limits, text);
	if (index >= 0 || limits->source == LIMITS_FILE)
		return index;
	int all_visible = !secure_getenv("CUDA_VISIBLE_DEVICES");
	index = all_visible && ordinal < HAMI_DEVICES ? ordinal : tightest(limits, ordinal % HAMI_DEVICES);
	log_line(LOG_WARN, "NVML does not name device %s: it gets the limit of number %d", text, index);
	return index;
}
