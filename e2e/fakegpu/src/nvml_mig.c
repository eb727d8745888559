/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nvml_mig.c: MIG, read only: mode, profiles and where an instance of each may start.
 * The starts are NVIDIA's published table for 8 memory slices (A100, H100, H200) and
 * for 4 (A30); an instance's memory is that many slices of the device's memory, less
 * what NVIDIA holds back, as published where known.
 */
#include "nvml_fake.h"

#include <stdio.h>
#include <string.h>

#define STARTS 8

/* One profile of a family. `profile` is NVML's enumeration, `id` what nvidia-smi shows. */
struct profile {
	unsigned profile, id, slices, memory_slices, instances;
	const char *suffix;
	int starts[STARTS]; /* ends with -1 */
};

struct family {
	const char *model; /* part of the device's name */
	unsigned sms_per_slice, memory_slices;
	uint64_t memory_from, memory_to; /* GiB of the device, half open */
	const struct profile *profiles;
	size_t count;
	/* MiB of an instance by its memory slices 1, 2, 4, 8 */
	unsigned mib[4];
};

static const struct profile eight[] = {
	{0, 19, 1, 1, 7, "", {0, 1, 2, 3, 4, 5, 6, -1}},
	{1, 14, 2, 2, 3, "", {0, 2, 4, -1}},
	{2, 9, 3, 4, 2, "", {0, 4, -1}},
	{3, 5, 4, 4, 1, "", {0, -1}},
	{4, 0, 7, 8, 1, "", {0, -1}},
	{7, 20, 1, 1, 1, "+me", {0, 1, 2, 3, 4, 5, 6, -1}},
	{9, 15, 1, 2, 4, "", {0, 2, 4, 6, -1}},
};
static const struct profile four[] = {
	{0, 14, 1, 1, 4, "", {0, 1, 2, 3, -1}},
	{1, 5, 2, 2, 2, "", {0, 2, -1}},
	{3, 0, 4, 4, 1, "", {0, -1}},
	{7, 21, 1, 1, 1, "+me", {0, 1, 2, 3, -1}},
};
#define EIGHT eight, sizeof eight / sizeof *eight
#define FOUR four, sizeof four / sizeof *four

static const struct family families[] = {
	{"A100", 14, 8, 30, 50, EIGHT, {4864, 9856, 19968, 40192}},
	{"A100", 14, 8, 70, 90, EIGHT, {9728, 19968, 40192, 80896}},
	{"H100", 16, 8, 70, 100, EIGHT, {10112, 20096, 40448, 81152}},
	{"H200", 16, 8, 130, 150, EIGHT, {17920, 35840, 71680, 143360}},
	{"A30", 14, 4, 20, 30, FOUR, {5836, 11672, 23344, 0}},
};

static const struct family *family_of(nvmlDevice_t device)
{
	uint64_t gib = device->gpu.memory >> 30;
	if (device->gpu.mig == FG_MIG_NONE)
		return NULL;
	for (size_t i = 0; i < sizeof families / sizeof *families; i++)
		if (strstr(device->gpu.model, families[i].model) && gib >= families[i].memory_from &&
		    gib < families[i].memory_to)
			return &families[i];
	return NULL;
}

static unsigned mib_of(const struct family *f, const struct profile *p)
{
	unsigned k = p->memory_slices == 1 ? 0 : p->memory_slices == 2 ? 1 : p->memory_slices == 4 ? 2 : 3;
	return f->mib[k];
}

FG_EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending);
FG_EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	CHECK_DEVICE(device, current && pending);
	if (device->gpu.mig == FG_MIG_NONE)
		return NVML_ERROR_NOT_SUPPORTED;
	*current = *pending = device->gpu.mig == FG_MIG_ENABLED;
	return NVML_SUCCESS;
}

FG_EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count);
FG_EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	CHECK_DEVICE(device, count);
	const struct family *f = device->gpu.mig == FG_MIG_ENABLED ? family_of(device) : NULL;
	*count = !f ? 0 : f->memory_slices == 8 ? 7 : 4;
	return NVML_SUCCESS;
}

FG_EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig);
FG_EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is_mig)
{
	CHECK_DEVICE(device, is_mig);
	*is_mig = 0;
	return NVML_SUCCESS;
}

FG_EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig);
FG_EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
	CHECK_DEVICE(device, mig && index < 8);
	return family_of(device) ? NVML_ERROR_NOT_FOUND : NVML_ERROR_NOT_SUPPORTED;
}

/* Memory in whole GB as profile names say it: rounded up to the marketing figure. */
static unsigned name_gb(const struct family *f, const struct profile *p)
{
	static const unsigned gb[][4] = {{5, 10, 20, 40}, {10, 20, 40, 80}, {10, 20, 40, 80}, {18, 35, 71, 141}, {6, 12, 24, 0}};
	unsigned k = p->memory_slices == 1 ? 0 : p->memory_slices == 2 ? 1 : p->memory_slices == 4 ? 2 : 3;
	return gb[f - families][k];
}

/* NVML_SUCCESS with the profile of this device, by NVML's enumeration. */
static nvmlReturn_t lookup(nvmlDevice_t device, unsigned profile, const struct family **f, const struct profile **p)
{
	*f = family_of(device);
	if (profile > 0x10)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (size_t i = 0; *f && i < (*f)->count; i++)
		if ((*f)->profiles[i].profile == profile)
			return *p = &(*f)->profiles[i], NVML_SUCCESS;
	return NVML_ERROR_NOT_SUPPORTED;
}

FG_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile, nvmlGpuInstanceProfileInfo_t *out);
FG_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t device, unsigned int profile, nvmlGpuInstanceProfileInfo_t *out)
{
	const struct family *f;
	const struct profile *p;
	CHECK_DEVICE(device, out);
	nvmlReturn_t r = lookup(device, profile, &f, &p);
	if (r != NVML_SUCCESS)
		return r;
	*out = (nvmlGpuInstanceProfileInfo_t){
		.id = p->id,
		.sliceCount = p->slices,
		.instanceCount = p->instances,
		.multiprocessorCount = p->slices * f->sms_per_slice,
		.copyEngineCount = p->slices,
		.decoderCount = p->slices / 2,
		.memorySizeMB = mib_of(f, p),
	};
	return NVML_SUCCESS;
}

FG_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int profile, nvmlGpuInstanceProfileInfo_v2_t *out);
FG_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfoV(nvmlDevice_t device, unsigned int profile, nvmlGpuInstanceProfileInfo_v2_t *out)
{
	const struct family *f;
	const struct profile *p;
	nvmlGpuInstanceProfileInfo_t info;
	CHECK_DEVICE(device, out);
	if (out->version != (sizeof *out | 2u << 24))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	nvmlReturn_t r = lookup(device, profile, &f, &p);
	if (r != NVML_SUCCESS)
		return r;
	nvmlDeviceGetGpuInstanceProfileInfo(device, profile, &info);
	memcpy(&out->id, &info.id, 10 * sizeof(unsigned));
	out->memorySizeMB = info.memorySizeMB;
	snprintf(out->name, sizeof out->name, "MIG %ug.%ugb%s", p->slices, name_gb(f, p), p->suffix);
	return NVML_SUCCESS;
}

FG_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int id, nvmlGpuInstancePlacement_t *out, unsigned int *count);
FG_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements_v2(nvmlDevice_t device, unsigned int id, nvmlGpuInstancePlacement_t *out, unsigned int *count)
{
	CHECK_DEVICE(device, count);
	const struct family *f = family_of(device);
	const struct profile *p = NULL;
	for (size_t i = 0; f && i < f->count; i++)
		if (f->profiles[i].id == id)
			p = &f->profiles[i];
	if (!p)
		return NVML_ERROR_NOT_SUPPORTED;
	unsigned n = 0;
	for (; n < STARTS && p->starts[n] >= 0; n++)
		if (out)
			out[n] = (nvmlGpuInstancePlacement_t){(unsigned)p->starts[n], p->memory_slices};
	*count = n;
	return NVML_SUCCESS;
}

FG_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device, unsigned int id, nvmlGpuInstancePlacement_t *out, unsigned int *count);
FG_EXPORT nvmlReturn_t nvmlDeviceGetGpuInstancePossiblePlacements(nvmlDevice_t device, unsigned int id, nvmlGpuInstancePlacement_t *out, unsigned int *count)
{
	return nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, id, out, count);
}
