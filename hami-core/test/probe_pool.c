/* SPDX-License-Identifier: Apache-2.0 */
/* probe_pool.c: pools that several threads use, managed ones, and streams that record. */
#define _GNU_SOURCE
#include "probe.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

static CUstream busy;

/*
 * Its stream works for seconds, and the pool takes more for it than any pool did before: it does
 * not fit.
 */
static void *overgrow(void *unused)
{
	CUdeviceptr at;
	use_device(0);
	NEED(cuMemAllocAsync(&at, 14 * MIB, busy) == CUDA_ERROR_OUT_OF_MEMORY);
	return unused;
}

static double seconds(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/*
 * While one thread waits for its stream, so as to give back what the pool took, the others go on.
 */
void probe_pool_busy(void)
{
	CUmemoryPool pool;
	CUstream other;
	CUdeviceptr a, b;
	CUmodule module;
	CUfunction function;
	pthread_t thread;
	uint64_t keep = UINT64_MAX;
	use_device(0);
	NEED(cuStreamCreate(&busy, 0) == CUDA_SUCCESS && cuStreamCreate(&other, 0) == CUDA_SUCCESS);
	NEED(cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
	NEED(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep) == CUDA_SUCCESS);
	NEED(cuModuleLoadData(&module, "x") == CUDA_SUCCESS && cuModuleGetFunction(&function, module, "work_3000000us") == CUDA_SUCCESS);
	NEED(cuMemAllocAsync(&a, 20 * MIB, other) == CUDA_SUCCESS && left() == 32 * MIB);
	setenv("FAKEGPU_POOL", "128", 1);
	double start = seconds();
	NEED(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, busy, NULL, NULL) == CUDA_SUCCESS);
	NEED(!pthread_create(&thread, NULL, overgrow, NULL));
	usleep(300000);
	setenv("FAKEGPU_POOL", "32", 1);
	NEED(left() == 0 && take(2 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	/* the pool has room */
	NEED(cuMemAllocAsync(&b, 4 * MIB, other) == CUDA_SUCCESS && cuMemFreeAsync(b, other) == CUDA_SUCCESS);
	/* but not that which is about to go */
	NEED(cuMemAllocAsync(&b, 30 * MIB, other) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemPoolTrimTo(pool, UINT64_MAX) == CUDA_SUCCESS);
	NEED(seconds() - start < 2);
	NEED(!pthread_join(thread, NULL) && seconds() - start >= 3);
	NEED(left() == 32 * MIB);
}

/* Managed memory counts wholly, as by cuMemAllocManaged, on the device where it is allocated. */
void probe_pool_managed(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_MANAGED, .location = {CU_MEM_LOCATION_TYPE_NONE, 0}};
	CUmemoryPool pool;
	CUdeviceptr at;
	use_device(0);
	NEED(cuMemPoolCreate(&pool, &props) == CUDA_SUCCESS && left() == 64 * MIB);
	NEED(cuMemAllocFromPoolAsync(&at, 66 * MIB, pool, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemAllocFromPoolAsync(&at, 64 * MIB, pool, NULL) == CUDA_SUCCESS && left() == 0 && take(1) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemFreeAsync(at, NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS && left() == 64 * MIB);
	NEED(cuMemPoolDestroy(pool) == CUDA_SUCCESS && left() == 64 * MIB);
}

/* What a thread's default stream records is no more the pool's than what any other stream does. */
void probe_capture_per_thread(void)
{
	CUdeviceptr at;
	CUgraph graph;
	use_device(0);
	NEED(cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, 1) == CUDA_SUCCESS);
	NEED(cuMemAllocAsync_ptsz(&at, 500 * MIB, NULL) == CUDA_SUCCESS && left() == 64 * MIB);
	NEED(cuMemFreeAsync_ptsz(at, NULL) == CUDA_SUCCESS);
	NEED(cuMemAllocAsync_ptsz(&at, 16 * MIB, CU_STREAM_PER_THREAD) == CUDA_SUCCESS && left() == 64 * MIB);
	NEED(cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph) == CUDA_SUCCESS && graph);
	NEED(cuMemAllocAsync_ptsz(&at, 30 * MIB, NULL) == CUDA_SUCCESS && left() == 32 * MIB);
}

static CUarrayMapInfo tile(CUarray array, unsigned int x, unsigned int width, CUmemGenericAllocationHandle h)
{
	return (CUarrayMapInfo){.resource.array = array, .subresource.sparseLevel = {.offsetX = x, .extentWidth = width, .extentHeight = 128, .extentDepth = 1},
				.memOperationType = h ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP, .memHandle = {h}, .deviceBitMask = 1};
}

/*
 * Memory in a sparse array stays taken until it is unmapped or the array goes, whoever releases its
 * handle.
 */
void probe_sparse(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUDA_ARRAY3D_DESCRIPTOR shape = {4096, 4096, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE};
	CUmemGenericAllocationHandle h;
	CUarrayMapInfo list[3];
	CUarray array;
	use_device(0);
	NEED(cuArray3DCreate_v2(&array, &shape) == CUDA_SUCCESS && left() == 64 * MIB);
	NEED(cuMemCreate(&h, 40 * MIB, &prop, 0) == CUDA_SUCCESS);
	list[0] = tile(array, 0, 128, h), list[1] = tile(array, 128, 128, h), list[2] = tile(array, 256, 128, h);
	/* the first again */
	NEED(cuMemMapArrayAsync(list, 3, NULL) == CUDA_SUCCESS && cuMemMapArrayAsync_ptsz(list, 1, NULL) == CUDA_SUCCESS);
	NEED(cuMemRelease(h) == CUDA_SUCCESS && left() == 24 * MIB);
	NEED(cuMemCreate(&h, 40 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	list[0] = tile(array, 0, 128, 0);
	NEED(cuMemMapArrayAsync_ptsz(list, 1, NULL) == CUDA_SUCCESS && left() == 24 * MIB);
	list[0] = tile(array, 0, 4096, 0);
	/* both others with one entry */
	NEED(cuMemMapArrayAsync(list, 1, NULL) == CUDA_SUCCESS && left() == 64 * MIB);
	NEED(cuMemCreate(&h, 40 * MIB, &prop, 0) == CUDA_SUCCESS);
	list[0] = tile(array, 0, 128, h), list[1] = tile(array, 0, 128, h + 1000);
	NEED(cuMemMapArrayAsync(list + 1, 1, NULL) != CUDA_SUCCESS && cuMemMapArrayAsync(NULL, 1, NULL) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemMapArrayAsync(list, 1, NULL) == CUDA_SUCCESS && cuMemRelease(h) == CUDA_SUCCESS && left() == 24 * MIB);
	NEED(cuArrayDestroy(array) == CUDA_SUCCESS && left() == 64 * MIB);
	NEED(cuArray3DCreate_v2(&array, &shape) == CUDA_SUCCESS && cuMemCreate(&h, 40 * MIB, &prop, 0) == CUDA_SUCCESS);
	list[0] = tile(array, 0, 128, h);
	NEED(cuMemMapArrayAsync(list, 1, NULL) == CUDA_SUCCESS && cuMemRelease(h) == CUDA_SUCCESS && left() == 24 * MIB);
	NEED(cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS); /* with its context */
	use_device(0);
	NEED(left() == 64 * MIB);
}
