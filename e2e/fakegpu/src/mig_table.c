/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mig_table.c: the profiles of each model. Starts, IDs and counts are those of NVIDIA's MIG
 * user guide: one table for devices of 8 memory slices, one for the A30 with 4. Memory is what
 * `nvidia-smi mig -lgip` prints; of the B200, 3g and 7g were not at hand, and multiples of its 2g
 * stand in. SMs
 * of Hopper are as reported, too (132 do not divide by 7); those of the B200 are its share.
 */
#include "mig.h"

#include <stdio.h>
#include <string.h>

struct shape {
	unsigned number, id, compute, slices, max;
	int media;
	int starts[FG_STARTS];
};

static const struct shape eight[] = {
	{0, 19, 1, 1, 7, 0, {0, 1, 2, 3, 4, 5, 6, -1}},
	{1, 14, 2, 2, 3, 0, {0, 2, 4, -1}},
	{2, 9, 3, 4, 2, 0, {0, 4, -1}},
	{3, 5, 4, 4, 1, 0, {0, -1}},
	{4, 0, 7, 8, 1, 0, {0, -1}},
	{7, 20, 1, 1, 1, 1, {0, 1, 2, 3, 4, 5, 6, -1}},
	{9, 15, 1, 2, 4, 0, {0, 2, 4, 6, -1}},
};
static const struct shape four[] = {
	{0, 14, 1, 1, 4, 0, {0, 1, 2, 3, -1}},
	{1, 5, 2, 2, 2, 0, {0, 2, -1}},
	{3, 0, 4, 4, 1, 0, {0, -1}},
	{7, 21, 1, 1, 1, 1, {0, 1, 2, 3, -1}},
	{8, 6, 2, 2, 1, 1, {0, 2, -1}},
};

struct family {
	const char *model; /* part of the device's name */
	uint64_t from, to; /* GiB of the device, half open */
	unsigned slices, compute;
	unsigned gb[4], mib[4]; /* by memory slices 1, 2, 4, 8: in the name, and in fact */
	unsigned sms[8];        /* by compute slices */
	unsigned sms_double;    /* of one compute slice with the memory of two */
};

static const struct family families[] = {
	{"A100", 30, 50, 8, 7, {5, 10, 20, 40}, {4864, 9856, 19968, 40192}, {0, 14, 28, 42, 56, 0, 0, 98}, 14},
	{"A100", 70, 90, 8, 7, {10, 20, 40, 80}, {9728, 19968, 40192, 80896}, {0, 14, 28, 42, 56, 0, 0, 98}, 14},
	{"H100", 70, 90, 8, 7, {10, 20, 40, 80}, {9984, 20096, 40448, 81152}, {0, 16, 32, 60, 64, 0, 0, 132}, 26},
	{"H200", 130, 150, 8, 7, {18, 35, 71, 141}, {16384, 33280, 71424, 143360}, {0, 16, 32, 60, 64, 0, 0, 132}, 26},
	{"B200", 170, 190, 8, 7, {23, 45, 90, 180}, {20992, 45312, 90624, 181248}, {0, 18, 36, 63, 84, 0, 0, 148}, 30},
	{"A30", 20, 30, 4, 4, {6, 12, 24, 0}, {5952, 11968, 24000, 0}, {0, 14, 28, 0, 56, 0, 0, 0}, 0},
};

static const struct family *family_of(const struct fg_gpu *gpu)
{
	uint64_t gib = gpu->memory >> 30;
	if (gpu->mig == FG_MIG_NONE)
		return NULL;
	for (size_t i = 0; i < sizeof families / sizeof *families; i++)
		if (strstr(gpu->model, families[i].model) && gib >= families[i].from && gib < families[i].to)
			return &families[i];
	return NULL;
}

static void fill(const struct family *f, const struct shape *s, struct fg_profile *out)
{
	unsigned k = s->slices == 1 ? 0 : s->slices == 2 ? 1 : s->slices == 4 ? 2 : 3;
	*out = (struct fg_profile){
		.number = s->number,
		.id = s->id,
		.compute = s->compute,
		.slices = s->slices,
		.max = s->max,
		.media = s->media,
		.mib = f->mib[k],
		.sms = s->number == 9 ? f->sms_double : f->sms[s->compute],
	};
	memcpy(out->starts, s->starts, sizeof out->starts);
	snprintf(out->name, sizeof out->name, "%ug.%ugb%s", s->compute, f->gb[k], s->media ? "+me" : "");
}

/* The n-th profile of a device; NVML_ERROR_NOT_FOUND after the last. */
static nvmlReturn_t nth(const struct fg_gpu *gpu, size_t n, struct fg_profile *out)
{
	const struct family *f = family_of(gpu);
	if (!f)
		return NVML_ERROR_NOT_SUPPORTED;
	const struct shape *shapes = f->slices == 8 ? eight : four;
	if (n >= (f->slices == 8 ? sizeof eight / sizeof *eight : sizeof four / sizeof *four))
		return NVML_ERROR_NOT_FOUND;
	fill(f, &shapes[n], out);
	return NVML_SUCCESS;
}

nvmlReturn_t fg_profile_by_number(const struct fg_gpu *gpu, unsigned number, struct fg_profile *out)
{
	for (size_t i = 0; nth(gpu, i, out) == NVML_SUCCESS; i++)
		if (out->number == number)
			return NVML_SUCCESS;
	return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t fg_profile_by_id(const struct fg_gpu *gpu, unsigned id, struct fg_profile *out)
{
	for (size_t i = 0; nth(gpu, i, out) == NVML_SUCCESS; i++)
		if (out->id == id)
			return NVML_SUCCESS;
	return NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t fg_profile_by_name(const struct fg_gpu *gpu, const char *name, struct fg_profile *out)
{
	for (size_t i = 0; nth(gpu, i, out) == NVML_SUCCESS; i++)
		if (!strcmp(out->name, name))
			return NVML_SUCCESS;
	return NVML_ERROR_NOT_SUPPORTED;
}

unsigned fg_mig_slices(const struct fg_gpu *gpu)
{
	const struct family *f = family_of(gpu);
	return f ? f->slices : 0;
}

unsigned fg_mig_compute(const struct fg_gpu *gpu)
{
	const struct family *f = family_of(gpu);
	return f ? f->compute : 0;
}

/* Slices of compute instances by NVML's profile number; 0: not offered. */
static const unsigned ci_slices[] = {1, 2, 3, 4, 7, 8, 6};

int fg_ci_number(unsigned slices)
{
	for (size_t i = 0; i < sizeof ci_slices / sizeof *ci_slices; i++)
		if (ci_slices[i] == slices)
			return (int)i;
	return -1;
}

unsigned fg_ci_slices(unsigned number)
{
	return number < sizeof ci_slices / sizeof *ci_slices ? ci_slices[number] : 0;
}
