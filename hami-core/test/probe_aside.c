/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_aside.c: what contexts set aside by cuCtxSetLimit, and ranges that hold mappings of several
 * kinds.
 */
#define _GNU_SOURCE
#include "probe_sized.h"

#include <pthread.h>

CUresult cuCtxGetLimit(size_t *, int);

#define STACK(bytes) ((bytes) * 100ULL * 2048) /* of all threads of the fake card */

void probe_limits_refused(void)
{
	size_t value;
	CUcontext own;
	use_device(0);
	NEED(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 512 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 512 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048) ==
	     CUDA_ERROR_OUT_OF_MEMORY); /* 200 MiB more */
	NEED(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, SIZE_MAX) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, SIZE_MAX) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 0) == CUDA_ERROR_INVALID_VALUE &&
	     cuCtxSetLimit(7, 1) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE) == CUDA_SUCCESS && value == 8 * MIB);
	NEED(truth_high(0) == 0 && left() == limit_of(0));
	NEED(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, limit_of(0) + 8 * MIB) == CUDA_SUCCESS &&
	     left() == 0);
	NEED(truth_used(0) == limit_of(0) && take(1) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS); /* with its context */
	use_device(0);
	NEED(left() == limit_of(0) && take(limit_of(0)) == CUDA_SUCCESS);
	use_device(1);
	NEED(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048) == CUDA_SUCCESS &&
	     truth_used(1) == STACK(1024)); /* no limit there */
	NEED(cuCtxCreate_v2(&own, 0, 1) == CUDA_SUCCESS &&
	     cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 3 * MIB) == CUDA_SUCCESS);
	NEED(cuCtxDestroy_v2(own) == CUDA_SUCCESS && truth_used(1) == STACK(1024));
}

void probe_limits_replaced(void)
{
	use_device(0);
	NEED(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 40 * MIB) == CUDA_SUCCESS &&
	     left() == 32 * MIB);
	NEED(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 72 * MIB) == CUDA_SUCCESS && left() == 0);
	NEED(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 74 * MIB) == CUDA_ERROR_OUT_OF_MEMORY &&
	     left() == 0);
	NEED(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 24 * MIB) == CUDA_SUCCESS &&
	     left() == 48 * MIB);
	NEED(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 4 * MIB) == CUDA_SUCCESS &&
	     left() == 64 * MIB);
	NEED(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 10 * MIB) == CUDA_SUCCESS &&
	     left() == 56 * MIB);
	NEED(truth_used(0) == 8 * MIB && take(56 * MIB) == CUDA_SUCCESS &&
	     truth_high(0) == limit_of(0));
}

static pthread_barrier_t start;

static void *change(void *argument)
{
	uint64_t seed = 1 + (uintptr_t)argument;
	CUcontext own = NULL;
	CUdeviceptr at;
	use_device(0);
	if (seed % 2)
		NEED(cuCtxCreate_v2(&own, 0, 0) == CUDA_SUCCESS);
	pthread_barrier_wait(&start);
	for (int i = 0; i < 400; i++) {
		cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE + (int)draw(&seed, 2),
			      1 + draw(&seed, 64 * MIB));
		if (cuMemAlloc_v2(&at, 2 * MIB * (1 + draw(&seed, 16))) == CUDA_SUCCESS)
			NEED(cuMemFree_v2(at) == CUDA_SUCCESS);
	}
	NEED(!own || cuCtxDestroy_v2(own) == CUDA_SUCCESS);
	return NULL;
}

void probe_limits_together(void)
{
	pthread_t thread[8];
	use_device(0);
	pthread_barrier_init(&start, NULL, 8);
	for (int i = 0; i < 8; i++)
		NEED(!pthread_create(&thread[i], NULL, change, (void *)(uintptr_t)i));
	for (int i = 0; i < 8; i++)
		NEED(!pthread_join(thread[i], NULL));
	NEED(truth_high(0) <= limit_of(0));
	NEED(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, MIB) == CUDA_SUCCESS &&
	     cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, MIB) == CUDA_SUCCESS);
	NEED(truth_used(0) == 0 && left() == limit_of(0) && take(limit_of(0)) == CUDA_SUCCESS);
}

static CUmemGenericAllocationHandle made(int type, uint64_t bytes)
{
	CUmemAllocationProp prop = {.type = 1, .location = {type, 0}};
	CUmemGenericAllocationHandle h;
	return cuMemCreate(&h, bytes, &prop, 0) == CUDA_SUCCESS ? h : 0;
}

static void map(CUdeviceptr at, uint64_t bytes, CUmemGenericAllocationHandle h)
{
	NEED(h && cuMemMap(at, bytes, 0, h, 0) == CUDA_SUCCESS && cuMemRelease(h) == CUDA_SUCCESS);
}

/*
 * A host handle, a hole and a device handle in one range; and one that was made past the library.
 */
void probe_mixed_range(void)
{
	CUdeviceptr at;
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
	CUmemGenericAllocationHandle h;
	CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
			   unsigned long long) = bare("cuMemCreate");
	use_device(0);
	NEED(cuMemAddressReserve(&at, 1ULL << 40, 0, 0, 0) == CUDA_SUCCESS);
	for (int round = 0; round < 3; round++) {
		map(at, 2 * MIB, made(CU_MEM_LOCATION_TYPE_HOST_NUMA, 2 * MIB));
		map(at + 4 * MIB, 60 * MIB, made(CU_MEM_LOCATION_TYPE_DEVICE, 60 * MIB));
		NEED(create(&h, 2 * MIB, &prop, 0) == CUDA_SUCCESS);
		map(at + 64 * MIB, 2 * MIB, h);
		map(at + (1ULL << 39), 4 * MIB, made(CU_MEM_LOCATION_TYPE_DEVICE, 4 * MIB));
		NEED(left() == 0 && cuMemUnmap(at + (1ULL << 41), 2 * MIB) != CUDA_SUCCESS &&
		     left() == 0);
		NEED(cuMemUnmap(at, 1ULL << 40) == CUDA_SUCCESS && truth_used(0) == 0 &&
		     left() == limit_of(0));
	}
}

#define SLOTS 512

/*
 * Many mappings of both kinds with holes between, unmapped by ranges that hold any number of them.
 */
void probe_mixed_random(void)
{
	static struct {
		uint64_t bytes; /* 0: a hole */
	} slot[SLOTS];
	const uint64_t step = 64 * MIB;
	uint64_t seed = 88172645463325252ULL, refused = 0;
	CUdeviceptr at;
	use_device(0);
	NEED(cuMemAddressReserve(&at, SLOTS * step, 0, 0, 0) == CUDA_SUCCESS);
	for (int i = 0; i < 20000; i++) {
		unsigned k = (unsigned)draw(&seed, SLOTS);
		uint64_t bytes = 2 * MIB * (1 + draw(&seed, 4));
		int device = draw(&seed, 3) != 0;
		if (draw(&seed, 4)) {
			CUmemGenericAllocationHandle h =
				slot[k].bytes ? 0
					      : made(device ? CU_MEM_LOCATION_TYPE_DEVICE
							    : CU_MEM_LOCATION_TYPE_HOST_NUMA,
						     bytes);
			NEED(slot[k].bytes || h || truth_used(0) + bytes > limit_of(0));
			refused += !slot[k].bytes && !h;
			if (h)
				map(at + k * step, slot[k].bytes = bytes, h);
			continue;
		}
		unsigned count = 1 + (unsigned)draw(&seed, draw(&seed, 50) ? 16 : SLOTS), any = 0;
		count = count < SLOTS - k ? count : SLOTS - k;
		for (unsigned n = k; n < k + count; n++)
			any += slot[n].bytes != 0, slot[n].bytes = 0;
		NEED(cuMemUnmap(at + k * step, count * step) ==
		     (any ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE));
	}
	NEED(refused > 100 && truth_high(0) <= limit_of(0));
	cuMemUnmap(at, SLOTS * step);
	NEED(truth_used(0) == 0 && left() == limit_of(0) && take(limit_of(0)) == CUDA_SUCCESS);
}
