/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "settings/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/nvml_fork.h"
#include "driver/resolve.h"

struct named {
	nvmlPciInfo_t pci;
	char uuid[DEVICE_UUID];
};

static int by_pci(const void *a, const void *b)
{
	const nvmlPciInfo_t *x = &((const struct named *)a)->pci,
			    *y = &((const struct named *)b)->pci;
	if (x->domain != y->domain)
		return x->domain < y->domain ? -1 : 1;
	if (x->bus != y->bus)
		return x->bus < y->bus ? -1 : 1;
	return x->device < y->device ? -1 : x->device > y->device;
}

static int ask_nvml(struct named *out)
{
	fn_nvmlDeviceGetCount_v2 count_devices = ORIGINAL(nvmlDeviceGetCount_v2);
	fn_nvmlDeviceGetHandleByIndex_v2 handle = ORIGINAL(nvmlDeviceGetHandleByIndex_v2);
	fn_nvmlDeviceGetUUID uuid = ORIGINAL(nvmlDeviceGetUUID);
	fn_nvmlDeviceGetPciInfo_v3 pci = ORIGINAL(nvmlDeviceGetPciInfo_v3);
	unsigned count = 0;
	if (!count_devices || !handle || !uuid || !pci || count_devices(&count) ||
	    count > HAMI_DEVICES)
		return 0;
	for (unsigned i = 0; i < count; i++) {
		nvmlDevice_t device;
		if (handle(i, &device) || uuid(device, out[i].uuid, sizeof out[i].uuid) ||
		    pci(device, &out[i].pci))
			return 0;
	}
	qsort(out, count, sizeof *out, by_pci);
	return (int)count;
}

int device_list(char out[HAMI_DEVICES][DEVICE_UUID])
{
	struct named list[HAMI_DEVICES];
	fn_nvmlInit_v2 init = ORIGINAL(nvmlInit_v2);
	fn_nvmlShutdown shutdown = ORIGINAL(nvmlShutdown);
	if (!init || !nvml_answers() || init() != NVML_SUCCESS)
		return 0;
	int count = ask_nvml(list);
	for (int i = 0; i < count; i++)
		snprintf(out[i], DEVICE_UUID, "%s", list[i].uuid);
	if (shutdown)
		shutdown();
	return count;
}

int device_uuid(CUdevice ordinal, char out[DEVICE_UUID])
{
	CUuuid raw;
	const unsigned char *b = raw.bytes;
	fn_cuDeviceGetUuid get = ORIGINAL(cuDeviceGetUuid);
	if (!get || get(&raw, ordinal) != CUDA_SUCCESS)
		return -1;
	snprintf(out, DEVICE_UUID,
		 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		 b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12],
		 b[13], b[14], b[15]);
	return 0;
}

/*
 * A device that cannot be told apart gets the tightest limit there is: too little rather than too
 * much.
 */
static int tightest_limit(const struct limits *limits, int otherwise)
{
	int best = -1;
	for (int i = 0; i < HAMI_DEVICES; i++) {
		const struct limits_device *d = &limits->device[i];
		if (d->memory && (best < 0 || d->memory < limits->device[best].memory))
			best = i;
	}
	return best < 0 ? otherwise : best;
}

int device_by_ordinal(const struct limits *limits, CUdevice ordinal)
{
	/* asked for now, as the driver does: programs set it before their first call */
	int all_visible = !secure_getenv("CUDA_VISIBLE_DEVICES");
	if (all_visible && ordinal < HAMI_DEVICES)
		return ordinal;
	return tightest_limit(limits, ordinal % HAMI_DEVICES);
}
