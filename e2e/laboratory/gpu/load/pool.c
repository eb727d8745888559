/* SPDX-License-Identifier: Apache-2.0 */
/* pool.c: stream-ordered memory, from the device's own pool or a private one. */
#define _GNU_SOURCE
#include "load.h"

#include <stdio.h>
#include <string.h>

#define MAX_PIECES 65536

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream);
CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream);
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device);
CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props);
CUresult cuMemPoolDestroy(CUmemoryPool pool);
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep);
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value);
CUresult cuStreamCreate(CUstream *stream, unsigned int flags);
CUresult cuStreamSynchronize(CUstream stream);

static CUmemoryPool pool;
static CUstream stream;
static int private_pool, pieces;
static CUdeviceptr piece[MAX_PIECES];

static unsigned long long reserved(void)
{
	unsigned long long bytes = 0;
	(void)cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes);
	return bytes;
}

static void answer(const char *extra, double value)
{
	printf("= %s=%.0f used=%llu reserved=%llu\n", extra, value, (unsigned long long)load_used(), reserved());
}

/* What the driver makes at the first use of a pool is not to lie in the figures. */
static CUresult use_once(void)
{
	CUdeviceptr at;
	CUresult r = cuMemAllocFromPoolAsync(&at, MIB, pool, stream);
	if (r == CUDA_SUCCESS)
		r = cuMemFreeAsync(at, stream);
	if (r == CUDA_SUCCESS)
		r = cuStreamSynchronize(stream);
	return r == CUDA_SUCCESS ? cuMemPoolTrimTo(pool, 0) : r;
}

/* pool-open default|private */
void load_pool_open(struct load *l, int count, char **words)
{
	CUmemPoolProps props;
	if (load_start(l) || load_failed("cuStreamCreate", cuStreamCreate(&stream, 0)))
		return;
	private_pool = count > 1 && !strcmp(words[1], "private");
	memset(&props, 0, sizeof props);
	props.allocType = 1;
	props.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = l->device};
	if (private_pool ? load_failed("cuMemPoolCreate", cuMemPoolCreate(&pool, &props))
			 : load_failed("cuDeviceGetDefaultMemPool", cuDeviceGetDefaultMemPool(&pool, l->device)))
		return;
	if (load_failed("first-use-of-the-pool", use_once()))
		return;
	answer("private", private_pool);
}

/* pool-fill BYTES: pieces until one is refused */
void load_pool_fill(struct load *l, int count, char **words)
{
	size_t bytes = (size_t)load_number(count, words, 1, 16.0 * MIB);
	CUresult r = CUDA_SUCCESS;
	(void)l;
	while (pieces < MAX_PIECES && r == CUDA_SUCCESS) {
		r = cuMemAllocFromPoolAsync(&piece[pieces], bytes, pool, stream);
		pieces += r == CUDA_SUCCESS;
	}
	if (load_failed("cuStreamSynchronize", cuStreamSynchronize(stream)))
		return;
	printf("= pieces=%d bytes=%zu code=%d used=%llu reserved=%llu\n", pieces, (size_t)pieces * bytes, r,
	       (unsigned long long)load_used(), reserved());
}

/* pool-rounds N BYTES: allocate and free, N times, waiting for the stream after every 16th */
void load_pool_rounds(struct load *l, int count, char **words)
{
	int rounds = (int)load_number(count, words, 1, 1000);
	size_t bytes = (size_t)load_number(count, words, 2, 8.0 * MIB);
	(void)l;
	for (int i = 0; i < rounds; i++) {
		CUdeviceptr at;
		if (load_failed("cuMemAllocFromPoolAsync", cuMemAllocFromPoolAsync(&at, bytes, pool, stream)) ||
		    load_failed("cuMemFreeAsync", cuMemFreeAsync(at, stream)))
			return;
		if (i % 16 == 15 && load_failed("cuStreamSynchronize", cuStreamSynchronize(stream)))
			return;
	}
	answer("rounds", rounds);
}

/* pool-close: everything freed, the pool trimmed to nothing, a private one destroyed */
void load_pool_close(struct load *l, int count, char **words)
{
	(void)l, (void)count, (void)words;
	while (pieces)
		if (load_failed("cuMemFreeAsync", cuMemFreeAsync(piece[--pieces], stream)))
			return;
	if (load_failed("cuStreamSynchronize", cuStreamSynchronize(stream)) ||
	    load_failed("cuMemPoolTrimTo", cuMemPoolTrimTo(pool, 0)))
		return;
	unsigned long long left = reserved();
	if (private_pool && load_failed("cuMemPoolDestroy", cuMemPoolDestroy(pool)))
		return;
	printf("= used=%llu reserved=%llu\n", (unsigned long long)load_used(), left);
}
