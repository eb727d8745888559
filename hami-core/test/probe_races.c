/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_races.c: two threads meet on one object: a stream that one records and the other allocates
 * on, a handle that one maps and the other releases, a context that one resets and the others
 * allocate in. The card's own count decides: never more than the limit of 64 MiB at any instant,
 * and in the end all of it is to be had again.
 */
#define _GNU_SOURCE
#include "probe.h"

#include <pthread.h>
#include <sched.h>

#define LIMIT (64 * MIB)
#define PAGE (2 * MIB)
#define ROUNDS 20000
#define KEPT 64

uint64_t fakegpu_used(int ordinal);
uint64_t fakegpu_used_high(int ordinal);

static int over; /* the other thread is done */
static pthread_barrier_t line;

static int is_over(void)
{
	return __atomic_load_n(&over, __ATOMIC_RELAXED);
}

/* Nothing was ever over the limit, and all of it is to be had in one piece. */
static void need_all_of_it(void)
{
	CUdeviceptr at;
	CUmemoryPool pool;
	NEED(fakegpu_used_high(0) <= LIMIT);
	NEED(!cuCtxSynchronize() && !cuDeviceGetDefaultMemPool(&pool, 0));
	NEED(!cuMemPoolTrimTo(pool, 0) && !cuDeviceGraphMemTrim(0));
	if (fakegpu_used(0) || left() != LIMIT)
		printf("    used %llu, left %zu\n", (unsigned long long)fakegpu_used(0), left());
	NEED(fakegpu_used(0) == 0 && left() == LIMIT);
	NEED(!cuMemAlloc_v2(&at, LIMIT) && take(1) == CUDA_ERROR_OUT_OF_MEMORY && !cuMemFree_v2(at));
	NEED(fakegpu_used_high(0) <= LIMIT);
}

/* Begins and ends captures on a stream until the rounds are over. */
static void *record(void *stream)
{
	use_device(0);
	for (int i = 0; i < ROUNDS; i++) {
		CUgraph graph = NULL;
		if (cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED))
			continue;
		if (i % 2)
			sched_yield();
		NEED(!cuStreamEndCapture(stream, &graph) && !cuGraphDestroy(graph));
	}
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	return NULL;
}

static pthread_t start_recording(CUstream *stream)
{
	pthread_t t;
	use_device(0);
	NEED(!cuStreamCreate(stream, 1));
	NEED(!pthread_create(&t, NULL, record, *stream));
	return t;
}

/* What was allocated may lie in the pool or be a graph's, what was freed may be there still. */
void probe_race_capture_pool(void)
{
	static CUdeviceptr at[ROUNDS];
	CUstream stream;
	pthread_t t = start_recording(&stream);
	int n = 0;
	while (!is_over()) {
		uint64_t bytes = n % 3 ? 32 * MIB : 512;
		CUresult r = n < ROUNDS ? cuMemAllocAsync(&at[n], bytes, stream)
					: CUDA_ERROR_OUT_OF_MEMORY;
		n += r == CUDA_SUCCESS;
		/* the freeing may be recorded: once more, below */
		if (r == CUDA_ERROR_OUT_OF_MEMORY || n % 4 == 0)
			for (int i = n > 8 ? n - 8 : 0; i < n; i++)
				(void)cuMemFreeAsync(at[i], stream);
		NEED(fakegpu_used_high(0) <= LIMIT);
	}
	pthread_join(t, NULL);
	for (int i = 0; i < n; i++)
		(void)cuMemFree_v2(at[i]);
	need_all_of_it();
}

/* Plain memory may be freed on a stream that is recorded: it is there until that graph runs. */
void probe_race_capture_free(void)
{
	static CUdeviceptr at[ROUNDS];
	CUstream stream;
	pthread_t t = start_recording(&stream);
	int n = 0;
	while (!is_over()) {
		if (n < ROUNDS && !cuMemAlloc_v2(&at[n], 8 * MIB))
			n++;
		else
			for (int i = n > 16 ? n - 16 : 0; i < n; i++)
				(void)cuMemFreeAsync(at[i], stream);
		NEED(fakegpu_used_high(0) <= LIMIT);
	}
	pthread_join(t, NULL);
	for (int i = 0; i < n; i++)
		(void)cuMemFree_v2(at[i]);
	need_all_of_it();
}

static CUgraphExec graph_that_takes(uint64_t bytes)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
		.bytesize = bytes};
	struct CUgraphNode_st *node;
	CUgraph graph;
	CUgraphExec exec;
	NEED(!cuGraphCreate(&graph, 0) && !cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
	NEED(!cuGraphAddMemFreeNode(&node, graph, &node, 1, params.dptr));
	NEED(!cuGraphInstantiateWithFlags(&exec, graph, 0) && !cuGraphDestroy(graph));
	return exec;
}

/* A graph that there is no room for, launched on a stream that is recorded by turns. */
void probe_race_capture_graph(void)
{
	CUdeviceptr at;
	CUstream stream;
	use_device(0);
	NEED(!cuMemAlloc_v2(&at, 32 * MIB));
	CUgraphExec exec = graph_that_takes(48 * MIB);
	pthread_t t = start_recording(&stream);
	while (!is_over()) {
		CUresult r = cuGraphLaunch(exec, stream);
		NEED(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY);
		NEED(fakegpu_used_high(0) <= LIMIT);
	}
	pthread_join(t, NULL);
	NEED(!cuCtxSynchronize() && !cuGraphExecDestroy(exec) && !cuMemFree_v2(at));
	need_all_of_it();
}

static struct {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr at;
	CUresult released;
} met;

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static void *release_handles(void *rounds)
{
	use_device(0);
	for (long i = 0; i < (long)rounds; i++) {
		pthread_barrier_wait(&line);
		met.released = cuMemRelease(met.handle);
		pthread_barrier_wait(&line);
	}
	return NULL;
}

/* Unmaps what is kept, and says how much there is to be had then. */
static int unmap_all(CUdeviceptr *kept, int n)
{
	while (n)
		NEED(!cuMemUnmap(kept[--n], PAGE));
	return 0;
}

/* A handle is mapped while its last reference goes: mapped, it keeps its memory. */
void probe_race_map_release(void)
{
	CUdeviceptr kept[KEPT];
	pthread_t t;
	int n = 0;
	use_device(0);
	NEED(!pthread_barrier_init(&line, NULL, 2));
	NEED(!pthread_create(&t, NULL, release_handles, (void *)(long)ROUNDS));
	for (int i = 0; i < ROUNDS; i++) {
		CUresult r = cuMemCreate(&met.handle, PAGE, &on_device, 0);
		if (r != CUDA_SUCCESS) {
			NEED(n >= 32); /* it is full of what is mapped, and of nothing else */
			n = unmap_all(kept, n);
			NEED(!cuMemCreate(&met.handle, PAGE, &on_device, 0));
		}
		NEED(n < KEPT && !cuMemAddressReserve(&kept[n], PAGE, 0, 0, 0));
		pthread_barrier_wait(&line);
		if (!cuMemMap(kept[n], PAGE, 0, met.handle, 0))
			n++;
		pthread_barrier_wait(&line);
		NEED(met.released == CUDA_SUCCESS && fakegpu_used_high(0) <= LIMIT);
	}
	pthread_join(t, NULL);
	unmap_all(kept, n);
	need_all_of_it();
}

/* Maps memory whose handle is released at once, and unmaps it, when there is room for it. */
static void *map_and_unmap(void *rounds)
{
	use_device(0);
	for (long i = 0; i < (long)rounds; i++) {
		CUmemGenericAllocationHandle handle;
		if (cuMemCreate(&handle, PAGE, &on_device, 0))
			continue;
		NEED(!cuMemMap(met.at, PAGE, 0, handle, 0) && !cuMemRelease(handle));
		if (i % 2)
			sched_yield();
		NEED(!cuMemUnmap(met.at, PAGE) && fakegpu_used_high(0) <= LIMIT);
	}
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* A handle is retained by its address while its last mapping goes: then it keeps its memory. */
void probe_race_retain_unmap(void)
{
	CUmemGenericAllocationHandle kept[2];
	CUdeviceptr rest;
	pthread_t t;
	int n = 0;
	use_device(0);
	NEED(!cuMemAlloc_v2(&rest, LIMIT - PAGE) && !cuMemAddressReserve(&met.at, PAGE, 0, 0, 0));
	NEED(!pthread_create(&t, NULL, map_and_unmap, (void *)(long)(10 * ROUNDS)));
	for (long i = 0; !is_over(); i++) {
		n += n < 2 && !cuMemRetainAllocationHandle(&kept[n], (void *)(uintptr_t)met.at);
		for (; n && i % 8 == 0; n--)
			NEED(!cuMemRelease(kept[n - 1]));
	}
	pthread_join(t, NULL);
	for (; n; n--)
		NEED(!cuMemRelease(kept[n - 1]));
	NEED(!cuMemFree_v2(rest));
	need_all_of_it();
}

/* Allocates and frees; what it holds may go with the context at any moment. */
static void *allocate_in_context(void *number)
{
	unsigned seed = 7 + (unsigned)(long)number;
	CUdeviceptr at[4];
	CUarray array;
	CUDA_ARRAY_DESCRIPTOR shape = {1024, 1024, CU_AD_FORMAT_UNSIGNED_INT8, 1};
	use_device(0);
	while (!is_over()) {
		int n = 0;
		while (n < 4 && !cuMemAlloc_v2(&at[n], 1 + (uint64_t)rand_r(&seed) % (3 * MIB)))
			n++;
		if (getenv("PROBE_ARRAYS") && !cuArrayCreate_v2(&array, &shape))
			(void)cuArrayDestroy(array);
		while (n)
			(void)cuMemFree_v2(at[--n]);
		NEED(fakegpu_used_high(0) <= LIMIT);
	}
	return NULL;
}

/* Blocks that were made while the context was reset are gone, and nobody pays for them. */
void probe_race_reset(void)
{
	pthread_t t[3];
	CUcontext context;
	use_device(0);
	for (long i = 0; i < 3; i++)
		NEED(!pthread_create(&t[i], NULL, allocate_in_context, (void *)i));
	for (int i = 0; i < ROUNDS / 4; i++)
		NEED(!cuDevicePrimaryCtxReset_v2(0) && !cuDevicePrimaryCtxRetain(&context, 0));
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	NEED(!cuDevicePrimaryCtxReset_v2(0) && !cuDevicePrimaryCtxRetain(&context, 0));
	use_device(0);
	need_all_of_it();
}
