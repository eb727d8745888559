/* SPDX-License-Identifier: Apache-2.0 */
/* memory.c: what the program is told about memory, and memory taken piece by piece. */
#define _GNU_SOURCE
#include "load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_BLOCKS 100000
#define ATTRIBUTES 150 /* more than any driver knows */

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total);
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device);
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device);
CUresult cuDeviceGetName(char *name, int length, CUdevice device);
CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device);
CUresult cuDriverGetVersion(int *version);
CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr pointer);
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop, unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemAddressReserve(CUdeviceptr *pointer, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr pointer, size_t bytes);
CUresult cuMemMap(CUdeviceptr pointer, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr pointer, size_t bytes);
CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop, int option);

static CUdeviceptr block[MAX_BLOCKS];
static int blocks;

uint64_t load_used(void)
{
	size_t free_bytes = 0, total = 0;
	return cuMemGetInfo_v2(&free_bytes, &total) == CUDA_SUCCESS ? total - free_bytes : 0;
}

/* info: makes the context; what CUDA says of the device's memory, and when by the clock of the world */
void load_info(struct load *l, int count, char **words)
{
	size_t total = 0, free_bytes = 0, all = 0;
	(void)count, (void)words;
	if (load_start(l) || load_failed("cuDeviceTotalMem", cuDeviceTotalMem_v2(&total, l->device)) ||
	    load_failed("cuMemGetInfo", cuMemGetInfo_v2(&free_bytes, &all)))
		return;
	printf("= pid=%d total=%zu meminfo_total=%zu meminfo_free=%zu used=%zu\n", (int)getpid(), total, all, free_bytes,
	       all - free_bytes);
}

/* identity: everything about the device that does not change, to be compared as text */
void load_identity(struct load *l, int count, char **words)
{
	CUuuid uuid;
	char name[128] = "";
	size_t total = 0;
	int version = 0;
	(void)count, (void)words;
	if (load_start(l) || load_failed("cuDeviceGetUuid", cuDeviceGetUuid(&uuid, l->device)) ||
	    load_failed("cuDeviceGetName", cuDeviceGetName(name, sizeof name, l->device)) ||
	    load_failed("cuDeviceTotalMem", cuDeviceTotalMem_v2(&total, l->device)) ||
	    load_failed("cuDriverGetVersion", cuDriverGetVersion(&version)))
		return;
	for (char *c = name; *c; c++)
		*c = *c == ' ' ? '_' : *c;
	printf("= name=%s version=%d total=%zu uuid=", name, version, total);
	for (int i = 0; i < 16; i++)
		printf("%02x", uuid.bytes[i]);
	printf(" attributes=");
	for (int i = 1; i <= ATTRIBUTES; i++) {
		int value = 0;
		CUresult r = cuDeviceGetAttribute(&value, i, l->device);
		if (r == CUDA_SUCCESS)
			printf("%d:%d,", i, value);
	}
	printf("\n");
}

/* Allocates until refused or `most` blocks. The last answer of the driver. */
static CUresult take(size_t bytes, int most, int *taken)
{
	CUresult r = CUDA_SUCCESS;
	for (*taken = 0; *taken < most && blocks < MAX_BLOCKS && r == CUDA_SUCCESS;) {
		r = cuMemAlloc_v2(&block[blocks], bytes);
		if (r == CUDA_SUCCESS)
			blocks++, ++*taken;
	}
	return r;
}

/* fill BYTES: blocks of this size until one is refused */
void load_fill(struct load *l, int count, char **words)
{
	size_t bytes = (size_t)load_number(count, words, 1, 2.0 * MIB);
	int taken;
	if (load_start(l))
		return;
	CUresult r = take(bytes, MAX_BLOCKS, &taken);
	printf("= blocks=%d bytes=%zu code=%d used=%llu\n", taken, (size_t)taken * bytes, r, (unsigned long long)load_used());
}

/* alloc BYTES COUNT */
void load_alloc(struct load *l, int count, char **words)
{
	int taken;
	if (load_start(l))
		return;
	CUresult r = take((size_t)load_number(count, words, 1, 2.0 * MIB), (int)load_number(count, words, 2, 1), &taken);
	printf("= blocks=%d code=%d used=%llu\n", taken, r, (unsigned long long)load_used());
}

/* free: all blocks */
void load_free(struct load *l, int count, char **words)
{
	CUresult r = CUDA_SUCCESS;
	(void)l, (void)count, (void)words;
	while (blocks && r == CUDA_SUCCESS)
		r = cuMemFree_v2(block[--blocks]);
	printf("= code=%d used=%llu\n", r, (unsigned long long)load_used());
}

/* physical BYTES: a handle made, mapped, released early, unmapped; bytes in use after each step */
void load_physical(struct load *l, int count, char **words)
{
	CUmemAllocationProp prop = {.type = 1, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at = 0;
	size_t granule = 0, bytes = (size_t)load_number(count, words, 1, 512.0 * MIB);
	uint64_t used[5];
	if (load_start(l))
		return;
	prop.location.id = l->device;
	if (load_failed("cuMemGetAllocationGranularity", cuMemGetAllocationGranularity(&granule, &prop, 0)))
		return;
	bytes = (bytes + granule - 1) / granule * granule;
	used[0] = load_used();
	if (load_failed("cuMemCreate", cuMemCreate(&handle, bytes, &prop, 0)))
		return;
	used[1] = load_used();
	if (load_failed("cuMemAddressReserve", cuMemAddressReserve(&at, bytes, 0, 0, 0)) ||
	    load_failed("cuMemMap", cuMemMap(at, bytes, 0, handle, 0)))
		return;
	used[2] = load_used();
	if (load_failed("cuMemRelease", cuMemRelease(handle)))
		return;
	used[3] = load_used();
	if (load_failed("cuMemUnmap", cuMemUnmap(at, bytes)))
		return;
	used[4] = load_used();
	(void)cuMemAddressFree(at, bytes);
	printf("= granule=%zu bytes=%zu before=%llu created=%llu mapped=%llu released=%llu unmapped=%llu\n", granule, bytes,
	       (unsigned long long)used[0], (unsigned long long)used[1], (unsigned long long)used[2],
	       (unsigned long long)used[3], (unsigned long long)used[4]);
}
