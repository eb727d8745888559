/* SPDX-License-Identifier: Apache-2.0 */
/* probe_odd.c: programs that do things in an unusual way or order. */
#define _GNU_SOURCE
#include "probe.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "hamicore_abi.h"

/* What the library does not know is the driver's to judge, with the driver's answer. */
void probe_unknown_pointers(void)
{
	CUarray array = (CUarray)&array;
	use_device(0);
	NEED(take(10 * MIB) == CUDA_SUCCESS);
	NEED(cuMemFree_v2(0x1234) == CUDA_ERROR_INVALID_VALUE && cuMemFree(0x1234) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemFreeAsync(0x1234, NULL) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemRelease(77) == CUDA_ERROR_INVALID_VALUE && cuMemUnmap(0x200000, 2 * MIB) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuArrayDestroy(array) == CUDA_ERROR_INVALID_HANDLE && cuMipmappedArrayDestroy((CUmipmappedArray)array) == CUDA_ERROR_INVALID_HANDLE);
	NEED(cuIpcCloseMemHandle(0x1234) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuCtxDestroy_v2((CUcontext)&array) == CUDA_ERROR_INVALID_CONTEXT);
	NEED(left() == 54 * MIB);
}

/* No context is current, as in libraries that allocate for another device or before any kernel. */
void probe_off_context(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle h;
	NEED(cuInit(0) == CUDA_SUCCESS);
	NEED(cuMemCreate(&h, 66 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemCreate(&h, 64 * MIB, &prop, 0) == CUDA_SUCCESS);
	NEED(take(1) == CUDA_ERROR_INVALID_CONTEXT); /* the driver's answer */
	prop.location.id = 1;
	NEED(cuMemCreate(&h, 66 * MIB, &prop, 0) == CUDA_SUCCESS);
	use_device(0);
	NEED(left() == 0 && take(1) == CUDA_ERROR_OUT_OF_MEMORY);
}

/* The host's memory is nobody's share. */
void probe_host_location(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
	CUmemGenericAllocationHandle h;
	use_device(0);
	NEED(cuMemCreate(&h, 512 * MIB, &prop, 0) == CUDA_SUCCESS && left() == 64 * MIB && cuMemRelease(h) == CUDA_SUCCESS);
	NEED(left() == 64 * MIB);
}

void probe_host_pool(void)
{
	CUmemPoolProps props = {.allocType = 1, .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
	CUmemoryPool pool;
	CUdeviceptr at;
	use_device(0);
	NEED(cuMemPoolCreate(&pool, &props) == CUDA_SUCCESS);
	NEED(cuMemAllocFromPoolAsync(&at, 512 * MIB, pool, NULL) == CUDA_SUCCESS && left() == 64 * MIB);
	NEED(cuMemFreeAsync(at, NULL) == CUDA_SUCCESS && cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS && left() == 64 * MIB);
	NEED(cuMemPoolDestroy(pool) == CUDA_SUCCESS && left() == 64 * MIB);
}

void probe_freed_elsewhere(void)
{
	CUdeviceptr a, b;
	use_device(0);
	NEED(cuMemAlloc_v2(&a, 40 * MIB) == CUDA_SUCCESS && cuMemAlloc_v2(&b, 20 * MIB) == CUDA_SUCCESS);
	use_device(1);
	size_t before = left();
	NEED(cuMemFree_v2(a) == CUDA_SUCCESS && left() == before);
	use_device(0);
	NEED(left() == 44 * MIB);
	NEED(cuCtxSetCurrent(NULL) == CUDA_SUCCESS && cuMemFree_v2(b) == CUDA_SUCCESS);
	use_device(0);
	NEED(left() == 64 * MIB);
}

/* Nothing goes below zero: not what is used, nor what is free. */
void probe_freed_twice(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle h;
	CUdeviceptr at;
	use_device(0);
	NEED(cuMemAlloc_v2(&at, 30 * MIB) == CUDA_SUCCESS && cuMemFree_v2(at) == CUDA_SUCCESS);
	NEED(cuMemFree_v2(at) == CUDA_ERROR_INVALID_VALUE && left() == 64 * MIB);
	NEED(cuMemCreate(&h, 30 * MIB, &prop, 0) == CUDA_SUCCESS && cuMemRelease(h) == CUDA_SUCCESS);
	NEED(cuMemRelease(h) == CUDA_ERROR_INVALID_VALUE && left() == 64 * MIB);
	NEED(take(64 * MIB) == CUDA_SUCCESS && take(1) == CUDA_ERROR_OUT_OF_MEMORY && left() == 0);
}

static void *handles(void *argument)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle h;
	CUdeviceptr at;
	(void)argument;
	for (int i = 0; i < 200; i++) {
		if (cuMemCreate(&h, 8 * MIB, &prop, 0) != CUDA_SUCCESS)
			continue;
		NEED(cuMemAddressReserve(&at, 8 * MIB, 0, 0, 0) == CUDA_SUCCESS && cuMemMap(at, 8 * MIB, 0, h, 0) == CUDA_SUCCESS);
		NEED(i % 2 ? cuMemRelease(h) == CUDA_SUCCESS && cuMemUnmap(at, 8 * MIB) == CUDA_SUCCESS
			   : cuMemUnmap(at, 8 * MIB) == CUDA_SUCCESS && cuMemRelease(h) == CUDA_SUCCESS);
	}
	return NULL;
}

void probe_handle_threads(void)
{
	pthread_t t[8];
	use_device(0);
	for (int i = 0; i < 8; i++)
		NEED(!pthread_create(&t[i], NULL, handles, NULL));
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	NEED(left() == 64 * MIB && take(64 * MIB) == CUDA_SUCCESS);
}

/* FAKEGPU_FAIL makes the second call fail after it was admitted: what was reserved comes back. */
void probe_late_failure(void)
{
	CUdeviceptr at;
	use_device(0);
	NEED(cuMemAllocAsync(&at, 20 * MIB, NULL) == CUDA_SUCCESS && left() == 32 * MIB);
	NEED(cuMemAllocAsync(&at, 20 * MIB, NULL) == CUDA_ERROR_UNKNOWN && left() == 32 * MIB);
	NEED(cuMemAllocAsync(&at, 80 * MIB, NULL) == CUDA_ERROR_OUT_OF_MEMORY && left() == 32 * MIB);
	NEED(cuMemAllocAsync(&at, 40 * MIB, NULL) == CUDA_SUCCESS && left() == 0);
}

/* A share larger than the card, and none: never more than the card has, never 0. */
void probe_above_card(void)
{
	size_t total;
	for (int device = 0; device < 2; device++) {
		use_device(device);
		NEED(cuDeviceTotalMem_v2(&total, device) == CUDA_SUCCESS && total == 1024 * MIB && left() == 1024 * MIB);
	}
}

/*
 * Two functions of one name with other arguments: each caller gets the one of its version,
 * untouched.
 */
void probe_advice(void)
{
	static const char *const names[] = {"cuMemAdvise", "cuMemPrefetchAsync"};
	char second[64];
	void *old, *new;
	int status;
	use_device(0);
	for (int i = 0; i < 2; i++) {
		snprintf(second, sizeof second, "%s_v2", names[i]);
		NEED(cuGetProcAddress_v2(names[i], &old, 8000, 0, &status) == CUDA_SUCCESS && cuGetProcAddress_v2(names[i], &new, 12020, 0, &status) == CUDA_SUCCESS);
		NEED(old && old == dlsym(RTLD_DEFAULT, names[i]) && new == dlsym(RTLD_DEFAULT, second) && old != new);
	}
}

/*
 * This driver's cuGetProcAddress gives out other pointers than dlsym; both are hooked, and by the
 * same hook.
 */
void probe_two_pointers(void)
{
	CUresult (*get)(const char *, void **, int, uint64_t);
	CUresult (*by_proc)(CUdeviceptr *, size_t) = NULL, (*by_name)(CUdeviceptr *, size_t) = NULL;
	CUdeviceptr at;
	void *other;
	use_device(0);
	*(void **)&get = dlsym(RTLD_DEFAULT, "cuGetProcAddress");
	*(void **)&by_name = dlsym(RTLD_DEFAULT, "cuMemAlloc_v2");
	NEED(get("cuMemAlloc", (void **)&by_proc, 12000, 0) == CUDA_SUCCESS && by_proc == by_name);
	NEED(get("cuMemAllocAsync", &other, 13000, 0) == CUDA_SUCCESS && other == dlsym(RTLD_DEFAULT, "cuMemAllocAsync"));
	/* as the driver does */
	NEED(get("cuDeviceGetName", &other, 13000, 0) == CUDA_SUCCESS && other != dlsym(RTLD_DEFAULT, "cuDeviceGetName"));
	NEED(by_proc(&at, 65 * MIB) == CUDA_ERROR_OUT_OF_MEMORY && by_proc(&at, 64 * MIB) == CUDA_SUCCESS);
}

/*
 * Allocations in a recording, and refusals beside it, leave it whole; recorded memory is not the
 * pool's.
 */
void probe_capture(void)
{
	CUstream recorded, other;
	CUgraph graph;
	CUdeviceptr at, outside;
	use_device(0);
	NEED(cuStreamCreate(&recorded, 0) == CUDA_SUCCESS && cuStreamCreate(&other, 0) == CUDA_SUCCESS);
	NEED(take(10 * MIB) == CUDA_SUCCESS);
	NEED(cuStreamBeginCapture_v2(recorded, 0) == CUDA_SUCCESS);
	NEED(cuMemAllocAsync(&at, 500 * MIB, recorded) == CUDA_SUCCESS && left() == 54 * MIB);
	/* the pool would take 64: given back */
	NEED(cuMemAllocAsync(&outside, 40 * MIB, other) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(take(60 * MIB) == CUDA_ERROR_OUT_OF_MEMORY && left() == 54 * MIB);
	NEED(cuMemFreeAsync(at, recorded) == CUDA_SUCCESS);
	NEED(cuStreamEndCapture(recorded, &graph) == CUDA_SUCCESS && graph);
	NEED(cuMemAllocAsync(&at, 30 * MIB, other) == CUDA_SUCCESS && left() == 22 * MIB);
}

/* One kernel on each of two devices, again and again: both devices' time is charged. */
void probe_several_devices(void)
{
	CUDA_LAUNCH_PARAMS list[2];
	CUmodule module;
	for (int i = 0; i < 2; i++) {
		list[i] = (CUDA_LAUNCH_PARAMS){NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL};
		use_device(i);
		NEED(cuStreamCreate(&list[i].hStream, 0) == CUDA_SUCCESS && cuModuleLoadData(&module, "x") == CUDA_SUCCESS);
		NEED(cuModuleGetFunction(&list[i].function, module, "work_2000us") == CUDA_SUCCESS);
	}
	for (int n = 0; n < 40; n++) {
		NEED(cuLaunchCooperativeKernelMultiDevice(list, 2, 0) == CUDA_SUCCESS);
		NEED(n % 4 || cuStreamSynchronize(list[0].hStream) == CUDA_SUCCESS);
	}
	NEED(cuLaunchCooperativeKernelMultiDevice(list, 3, 0) != CUDA_SUCCESS && cuLaunchCooperativeKernelMultiDevice(NULL, 1, 0) != CUDA_SUCCESS);
	for (int i = 0; i < 2; i++) {
		use_device(i);
		NEED(cuStreamSynchronize(list[i].hStream) == CUDA_SUCCESS);
	}
	/* what has ended is booked with the next launch */
	NEED(cuLaunchCooperativeKernelMultiDevice(list, 2, 0) == CUDA_SUCCESS);
	for (int i = 0; i < 2; i++) {
		printf("    device %d: %llu us charged of 80000\n", i, (unsigned long long)probe_region()->ext.pace[i].spent_ns / 1000);
		/* most of them by estimate, the first as of something new */
		NEED(probe_region()->ext.pace[i].spent_ns >= 10000000);
	}
}
