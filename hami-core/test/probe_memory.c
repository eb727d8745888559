/* SPDX-License-Identifier: Apache-2.0 */
/* probe_memory.c: every kind of memory, and what programs are told about it. */
#define _GNU_SOURCE
#include "probe.h"

#include <dlfcn.h>
#include <string.h>

void probe_exact(void)
{
	CUdeviceptr a, b;
	use_device(0);
	NEED(cuMemAlloc_v2(&a, 64 * MIB) == CUDA_SUCCESS);
	NEED(left() == 0);
	NEED(cuMemAlloc_v2(&b, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemFree_v2(a) == CUDA_SUCCESS);
	NEED(cuMemAlloc_v2(&a, 64 * MIB + 1) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemAlloc_v2(&a, 62 * MIB) == CUDA_SUCCESS);
	NEED(cuMemAlloc_v2(&b, 2 * MIB) == CUDA_SUCCESS);
	NEED(cuMemsetD8_v2(b, 7, 2 * MIB) == CUDA_SUCCESS); /* usable after a refusal */
	NEED(cuMemFree_v2(12345) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemFree_v2(0) == CUDA_SUCCESS);
	NEED(take(0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemAlloc_v2(NULL, 1) != CUDA_SUCCESS);
	NEED(take(UINT64_MAX) == CUDA_ERROR_OUT_OF_MEMORY);
}

void probe_small(void)
{
	static CUdeviceptr at[200000];
	int n = 0;
	use_device(0);
	NEED(take(62 * MIB) == CUDA_SUCCESS);
	while (cuMemAlloc_v2(&at[n], 4096) == CUDA_SUCCESS)
		n++;
	NEED(n == 512); /* 2 MiB in pieces of 4 KiB */
	NEED(left() == 0);
	while (n)
		NEED(cuMemFree_v2(at[--n]) == CUDA_SUCCESS);
	NEED(left() == 2 * MIB);
}

void probe_kinds(void)
{
	CUdeviceptr at;
	size_t pitch;
	use_device(0);
	NEED(cuMemAllocManaged(&at, 16 * MIB, 1) == CUDA_SUCCESS);
	/* 1000 becomes 1024: 16 MiB */
	NEED(cuMemAllocPitch_v2(&at, &pitch, 1000, 16384, 4) == CUDA_SUCCESS);
	NEED(pitch == 1024 && left() == 32 * MIB);
	/* asks 128 KiB, takes 64 MiB */
	NEED(cuMemAllocPitch_v2(&at, &pitch, 1, 1 << 17, 4) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(left() == 32 * MIB);
	NEED(cuMemAllocPitch_v2(&at, &pitch, SIZE_MAX / 2, 8, 4) != CUDA_SUCCESS);
	NEED(cuMemAllocManaged(&at, 33 * MIB, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemAllocManaged(&at, 32 * MIB, 1) == CUDA_SUCCESS);
}

void probe_version_one(void)
{
	CUdeviceptr_v1 a, b;
	unsigned int free_bytes, total;
	use_device(0);
	NEED(cuMemGetInfo(&free_bytes, &total) == CUDA_SUCCESS && total == 64 * MIB && free_bytes == 64 * MIB);
	NEED(cuDeviceTotalMem(&total, 0) == CUDA_SUCCESS && total == 64 * MIB);
	NEED(cuMemAlloc(&a, 64 * MIB) == CUDA_SUCCESS);
	NEED(cuMemAlloc(&b, 1) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemFree(a) == CUDA_SUCCESS);
	NEED(left() == 64 * MIB);
}

void probe_null_arguments(void)
{
	size_t total = 0, free_bytes = 0;
	use_device(0);
	NEED(cuMemGetInfo_v2(NULL, &total) == CUDA_SUCCESS && total == 64 * MIB);
	NEED(cuMemGetInfo_v2(&free_bytes, NULL) == CUDA_SUCCESS && free_bytes == 64 * MIB);
	NEED(cuMemGetInfo_v2(NULL, NULL) == CUDA_SUCCESS);
	NEED(cuDeviceTotalMem_v2(NULL, 0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemCreate(NULL, 2 * MIB, NULL, 0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemAllocAsync(NULL, MIB, NULL) == CUDA_ERROR_INVALID_VALUE);
}

void probe_pools(void)
{
	CUdeviceptr a, b;
	CUmemoryPool pool;
	uint64_t keep = UINT64_MAX;
	use_device(0);
	NEED(cuDeviceGetDefaultMemPool(&pool, 0) == CUDA_SUCCESS);
	NEED(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep) == CUDA_SUCCESS);
	NEED(cuMemAllocAsync(&a, 20 * MIB, NULL) == CUDA_SUCCESS);
	NEED(left() == 32 * MIB); /* pools take by 32 MiB */
	NEED(cuMemAllocAsync(&b, 45 * MIB, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemAllocAsync_ptsz(&b, 44 * MIB, NULL) == CUDA_SUCCESS);
	NEED(cuMemAllocAsync(&a, 512, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemFreeAsync_ptsz(b, NULL) == CUDA_SUCCESS);
	NEED(left() == 0);                                /* the pool keeps it */
	NEED(take(2 * MIB) == CUDA_ERROR_OUT_OF_MEMORY); /* so nobody else has it */
	NEED(cuMemAllocAsync(&b, 40 * MIB, NULL) == CUDA_SUCCESS); /* but the pool itself has */
	NEED(cuMemFree_v2(b) == CUDA_SUCCESS);
	NEED(cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS);
	NEED(left() == 0); /* nothing has synchronised */
	NEED(cuCtxSynchronize() == CUDA_SUCCESS && cuMemPoolTrimTo(pool, 0) == CUDA_SUCCESS);
	NEED(left() == 32 * MIB);
	NEED(take(32 * MIB) == CUDA_SUCCESS);
}

/* The pool takes more than was asked of it: what does not fit goes back. */
void probe_granule(void)
{
	CUdeviceptr at;
	use_device(0);
	NEED(take(10 * MIB) == CUDA_SUCCESS);
	NEED(cuMemAllocAsync(&at, 40 * MIB, NULL) == CUDA_ERROR_OUT_OF_MEMORY); /* would take 64 */
	NEED(left() == 54 * MIB);
	NEED(cuMemAllocAsync(&at, 30 * MIB, NULL) == CUDA_SUCCESS && left() == 22 * MIB);
}

/* Memory comes from the device of the stream, whatever device is current. */
void probe_foreign_stream(void)
{
	CUstream stream;
	CUdeviceptr at;
	use_device(0);
	NEED(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
	use_device(1);
	size_t before = left();
	NEED(cuMemAllocAsync(&at, 65 * MIB, stream) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemAllocAsync(&at, 64 * MIB, stream) == CUDA_SUCCESS && left() == before);
	use_device(0);
	NEED(left() == 0);
}

void probe_pool_of_own(void)
{
	CUmemPoolProps props = {.allocType = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUdeviceptr a;
	CUmemoryPool pool;
	use_device(1); /* not the pool's device */
	NEED(cuMemPoolCreate(&pool, &props) == CUDA_SUCCESS);
	NEED(cuMemAllocFromPoolAsync(&a, 65 * MIB, pool, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemAllocFromPoolAsync(&a, 64 * MIB, pool, NULL) == CUDA_SUCCESS);
	use_device(0);
	NEED(left() == 0);
	NEED(cuMemPoolDestroy(pool) == CUDA_SUCCESS);
	NEED(left() == 0); /* in use: the driver keeps it */
	NEED(cuMemFreeAsync(a, NULL) == CUDA_SUCCESS);
	NEED(left() == 64 * MIB);
}

void probe_synchronised(void)
{
	CUdeviceptr a;
	use_device(0);
	NEED(cuMemAllocAsync(&a, 64 * MIB, NULL) == CUDA_SUCCESS);
	NEED(cuMemFreeAsync(a, NULL) == CUDA_SUCCESS);
	NEED(cuCtxSynchronize() == CUDA_SUCCESS); /* the pool gives it back by itself */
	NEED(take(64 * MIB) == CUDA_SUCCESS);
}

void probe_mappings(void)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle h, second;
	CUdeviceptr at;
	use_device(1); /* not the device of the allocation */
	NEED(cuMemCreate(&h, 66 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemCreate(&h, 64 * MIB, &prop, 0) == CUDA_SUCCESS);
	NEED(cuMemAddressReserve(&at, 64 * MIB, 0, 0, 0) == CUDA_SUCCESS);
	NEED(cuMemMap(at, 64 * MIB, 0, h, 0) == CUDA_SUCCESS);
	NEED(cuMemRelease(h) == CUDA_SUCCESS); /* still mapped: still taken */
	NEED(cuMemCreate(&second, 2 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemRetainAllocationHandle(&h, (void *)at) == CUDA_SUCCESS);
	NEED(cuMemUnmap(at, 64 * MIB) == CUDA_SUCCESS); /* retained: still taken */
	NEED(cuMemCreate(&second, 2 * MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemRelease(h) == CUDA_SUCCESS);
	NEED(cuMemRelease(h) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemCreate(&second, 64 * MIB, &prop, 0) == CUDA_SUCCESS);
	NEED(cuMemRelease(second) == CUDA_SUCCESS);
	prop.location.id = 99;
	NEED(cuMemCreate(&h, 2 * MIB, &prop, 0) == CUDA_ERROR_INVALID_VALUE);
}

void probe_contexts(void)
{
	CUDA_ARRAY_DESCRIPTOR flat = {4096, 512, CU_AD_FORMAT_FLOAT, 2}; /* 16 MiB */
	CUarray array;
	CUcontext own;
	use_device(0);
	NEED(take(20 * MIB) == CUDA_SUCCESS && cuArrayCreate_v2(&array, &flat) == CUDA_SUCCESS);
	NEED(cuCtxCreate_v2(&own, 0, 0) == CUDA_SUCCESS);
	NEED(take(10 * MIB) == CUDA_SUCCESS && take(4096) == CUDA_SUCCESS && left() == 16 * MIB);
	NEED(cuCtxDestroy_v2(own) == CUDA_SUCCESS); /* its 12 MiB go, the others stay */
	NEED(cuCtxDestroy_v2(own) != CUDA_SUCCESS);
	use_device(0); /* a second reference */
	NEED(left() == 28 * MIB);
	NEED(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS && left() == 28 * MIB);
	NEED(cuDevicePrimaryCtxRelease_v2(0) == CUDA_SUCCESS); /* the last */
	NEED(cuDevicePrimaryCtxRelease_v2(0) == CUDA_ERROR_INVALID_CONTEXT);
	use_device(0);
	NEED(left() == 64 * MIB && take(64 * MIB) == CUDA_SUCCESS);
	NEED(cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS);
	use_device(0);
	NEED(left() == 64 * MIB);
}

void probe_arrays(void)
{
	/* 64 MiB */
	CUDA_ARRAY_DESCRIPTOR flat = {4096, 2048, CU_AD_FORMAT_FLOAT, 2};
	/* 32 MiB */
	CUDA_ARRAY_DESCRIPTOR_v1 flat1 = {4096, 1024, CU_AD_FORMAT_HALF, 4};
	/* 16 MiB */
	CUDA_ARRAY3D_DESCRIPTOR deep = {1024, 1024, 16, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
	CUDA_ARRAY3D_DESCRIPTOR_v1 deep1 = {1024, 1024, 17, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0};
	CUarray a, b, c;
	CUmipmappedArray m;
	use_device(0);
	NEED(cuArrayCreate_v2(&a, &flat) == CUDA_SUCCESS && left() == 0);
	NEED(cuArrayCreate(&b, &flat1) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuArrayDestroy(a) == CUDA_SUCCESS && left() == 64 * MIB);
	NEED(cuArrayCreate(&b, &flat1) == CUDA_SUCCESS);
	NEED(cuArray3DCreate_v2(&c, &deep) == CUDA_SUCCESS && left() == 16 * MIB);
	NEED(cuArray3DCreate(&a, &deep1) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMipmappedArrayCreate(&m, &deep, 2) == CUDA_ERROR_OUT_OF_MEMORY); /* 16 + 2 MiB */
	NEED(cuMipmappedArrayCreate(&m, &deep, 1) == CUDA_SUCCESS && left() == 0);
	NEED(cuMipmappedArrayDestroy(m) == CUDA_SUCCESS && left() == 16 * MIB);
	NEED(cuArrayCreate_v2(&a, NULL) == CUDA_ERROR_INVALID_VALUE);
	flat.NumChannels = 3;
	NEED(cuArrayCreate_v2(&a, &flat) != CUDA_SUCCESS && left() == 16 * MIB);
}

void probe_injected(void)
{
	CUdeviceptr at;
	use_device(0);
	/* FAKEGPU_FAIL makes the second fail: what was reserved comes back */
	for (int i = 0; i < 3; i++)
		NEED(cuMemAlloc_v2(&at, 20 * MIB) == (i == 1 ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS));
	NEED(left() == 24 * MIB);
}

void probe_nvml(void)
{
	nvmlReturn_t (*init)(void), (*handle)(unsigned, nvmlDevice_t *), (*info)(nvmlDevice_t, nvmlMemory_t *);
	nvmlReturn_t (*info2)(nvmlDevice_t, nvmlMemory_v2_t *), (*uuid)(nvmlDevice_t, char *, unsigned);
	nvmlDevice_t device;
	nvmlMemory_t m;
	nvmlMemory_v2_t m2 = {.version = sizeof m2 | 2u << 24};
	char text[96];
	void *h = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	NEED(h);
	*(void **)&init = dlsym(h, "nvmlInit_v2");
	*(void **)&handle = dlsym(h, "nvmlDeviceGetHandleByIndex_v2");
	*(void **)&info = dlsym(h, "nvmlDeviceGetMemoryInfo");
	*(void **)&info2 = dlsym(h, "nvmlDeviceGetMemoryInfo_v2");
	*(void **)&uuid = dlsym(h, "nvmlDeviceGetUUID");
	use_device(0);
	NEED(take(10 * MIB) == CUDA_SUCCESS);
	NEED(init() == NVML_SUCCESS);
	for (unsigned i = 0; i < 2; i++) { /* NVML's order is not CUDA's here */
		NEED(handle(i, &device) == NVML_SUCCESS && uuid(device, text, sizeof text) == NVML_SUCCESS);
		int limited = !strncmp(text, "GPU-00000000", 12);
		NEED(info(device, &m) == NVML_SUCCESS && info2(device, &m2) == NVML_SUCCESS);
		NEED(m.total == (limited ? 64 : 1024) * MIB && m2.total == m.total);
		NEED(m.used == (limited ? 10 : 0) * MIB && m2.used == m.used);
		m2.version++;
		NEED(info2(device, &m2) == NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
		m2.version--;
		NEED(m.used + m.free == m.total && m2.used + m2.free + m2.reserved == m2.total);
	}
}

static CUDA_MEM_ALLOC_NODE_PARAMS node_of(uint64_t bytes)
{
	return (CUDA_MEM_ALLOC_NODE_PARAMS){.poolProps = {.allocType = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
					    .bytesize = bytes};
}

/* A graph that allocates, and frees if it `frees`. */
static CUgraphExec graph_of(uint64_t bytes, int frees)
{
	CUgraph graph;
	CUgraphNode node;
	CUgraphExec exec;
	CUDA_MEM_ALLOC_NODE_PARAMS a = node_of(bytes);
	NEED(cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
	NEED(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &a) == CUDA_SUCCESS);
	if (frees)
		NEED(cuGraphAddMemFreeNode(&node, graph, &node, 1, a.dptr) == CUDA_SUCCESS);
	NEED(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS && cuGraphDestroy(graph) == CUDA_SUCCESS);
	return exec;
}

/* Behind a closed gate no graph with memory is made ready, and contexts set nothing more aside. */
void probe_refused_sized(void)
{
	CUgraph graph, empty;
	CUgraphNode node;
	CUgraphExec exec;
	CUDA_MEM_ALLOC_NODE_PARAMS a = node_of(16 * MIB);
	use_device(0);
	NEED(cuGraphCreate(&graph, 0) == CUDA_SUCCESS && cuGraphCreate(&empty, 0) == CUDA_SUCCESS);
	NEED(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &a) == CUDA_SUCCESS);
	NEED(cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_ERROR_NOT_PERMITTED);
	NEED(cuGraphInstantiateWithFlags(&exec, empty, 0) == CUDA_SUCCESS && cuGraphLaunch(exec, NULL) == CUDA_SUCCESS);
	NEED(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 64 * MIB) == CUDA_ERROR_NOT_PERMITTED);
	NEED(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1 * MIB) == CUDA_SUCCESS);
	NEED(left() == 0);
}

/* What graphs hold counts, and what they hold no longer makes room before a graph is refused. */
void probe_graph_memory(void)
{
	use_device(0);
	CUgraphExec a = graph_of(16 * MIB, 1), b = graph_of(48 * MIB, 1), c = graph_of(64 * MIB, 1), d = graph_of(66 * MIB, 1);
	NEED(left() == 64 * MIB);
	NEED(cuGraphLaunch(a, NULL) == CUDA_SUCCESS && left() == 48 * MIB);
	NEED(take(48 * MIB + 1) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuCtxSynchronize() == CUDA_SUCCESS && left() == 48 * MIB);
	NEED(cuDeviceGraphMemTrim(0) == CUDA_SUCCESS && left() == 64 * MIB);
	NEED(cuGraphLaunch(a, NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	/* it takes the other one's place */
	NEED(cuGraphLaunch(b, NULL) == CUDA_SUCCESS && left() == 16 * MIB);
	NEED(cuCtxSynchronize() == CUDA_SUCCESS && take(10 * MIB) == CUDA_SUCCESS);
	NEED(cuGraphLaunch(b, NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	/* what was idle is trimmed */
	NEED(cuGraphLaunch(c, NULL) == CUDA_ERROR_OUT_OF_MEMORY && left() == 54 * MIB);
	NEED(cuGraphLaunch(d, NULL) == CUDA_ERROR_OUT_OF_MEMORY && left() == 54 * MIB);
	NEED(cuGraphLaunch(b, NULL) == CUDA_SUCCESS && left() == 6 * MIB);
}
