/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_forks.c: a process holds memory of each kind, its threads take and give more and relaunch
 * graphs, and meanwhile it forks children that call everything on what is not theirs. What the
 * parent has stays paid for, once, and nothing of it is credited by a child.
 */
#include "probe.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4
#define CHILDREN 200
#define KEPT (44 * MIB) /* the pool's granule of 32, the graph's 4, and four times 2 */

uint64_t fakegpu_used(int ordinal);

static struct {
	CUdeviceptr large, small, pooled;
	CUgraphExec graph;
	CUmemGenericAllocationHandle handle;
	CUarray array;
	CUmemoryPool pool;
} kept;
static int over; /* the children are done */

static CUgraphExec graph_of(uint64_t bytes)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
		.bytesize = bytes};
	struct CUgraphNode_st *alloc, *free_node;
	CUgraph graph;
	CUgraphExec exec;
	NEED(!cuGraphCreate(&graph, 0) && !cuGraphAddMemAllocNode(&alloc, graph, NULL, 0, &params));
	NEED(!cuGraphAddMemFreeNode(&free_node, graph, &alloc, 1, params.dptr));
	NEED(!cuGraphInstantiateWithFlags(&exec, graph, 0) && !cuGraphDestroy(graph));
	return exec;
}

static void keep_some(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUDA_ARRAY_DESCRIPTOR flat = {1024, 1024, CU_AD_FORMAT_HALF, 1};
	uint64_t all = UINT64_MAX;
	use_device(0);
	NEED(!cuMemAlloc_v2(&kept.large, 2 * MIB) && !cuMemAlloc_v2(&kept.small, 512));
	NEED(!cuMemCreate(&kept.handle, 2 * MIB, &prop, 0) && !cuArrayCreate_v2(&kept.array, &flat));
	NEED(!cuDeviceGetDefaultMemPool(&kept.pool, 0));
	NEED(!cuMemPoolSetAttribute(kept.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
	NEED(!cuMemAllocAsync(&kept.pooled, MIB, NULL));
	kept.graph = graph_of(4 * MIB);
	NEED(!cuGraphLaunch(kept.graph, NULL) && !cuCtxSynchronize());
	NEED(left() == 64 * MIB - KEPT && fakegpu_used(0) == KEPT);
}

/* In a child, which cannot use CUDA: a bit for each call that succeeds all the same. */
static int meddle(void)
{
	CUdeviceptr at;
	const CUresult results[] = {
		cuMemFree_v2(kept.large),       cuMemFree_v2(kept.small),
		cuMemFreeAsync(kept.pooled, NULL), cuMemPoolTrimTo(kept.pool, 0),
		cuGraphLaunch(kept.graph, NULL), cuDeviceGraphMemTrim(0),
		cuMemRelease(kept.handle),      cuArrayDestroy(kept.array),
		cuDevicePrimaryCtxReset_v2(0),  cuMemAlloc_v2(&at, 512),
		cuMemAllocAsync(&at, 512, NULL)};
	int done = 0;
	for (size_t i = 0; i < sizeof results / sizeof *results; i++)
		done |= (results[i] == CUDA_SUCCESS) << i;
	return done;
}

/* Takes and gives blocks of up to 4 MiB, pieces of the pool, and the graph's memory. */
static void *churn(void *number)
{
	unsigned seed = 1 + (unsigned)(long)number;
	CUgraphExec own = graph_of(4 * MIB);
	CUstream stream;
	use_device(0);
	NEED(!cuStreamCreate(&stream, 1));
	while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
		CUdeviceptr at;
		uint64_t bytes = 1 + (uint64_t)rand_r(&seed) % (4 * MIB >> rand_r(&seed) % 14);
		int way = rand_r(&seed) % 4;
		if (way == 0 && !cuMemAllocAsync(&at, bytes, stream))
			NEED(!cuMemFreeAsync(at, stream));
		else if (way == 1)
			(void)cuGraphLaunch(own, stream);
		else if (way > 1 && !cuMemAlloc_v2(&at, bytes))
			NEED(!cuMemFree_v2(at));
		NEED(fakegpu_used(0) <= 64 * MIB);
	}
	NEED(!cuStreamSynchronize(stream) && !cuGraphExecDestroy(own));
	return NULL;
}

static void fork_children(void)
{
	int status;
	for (int i = 0; i < CHILDREN; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			/* a lock that a thread of the parent held would be one for ever */
			alarm(20);
			int done = meddle();
			if (done)
				printf("    a child did what it cannot: %x\n", done);
			fflush(stdout);
			_exit(done != 0);
		}
		NEED(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	}
}

void probe_exact_forks(void)
{
	pthread_t t[THREADS];
	keep_some();
	for (long i = 0; i < THREADS; i++)
		NEED(!pthread_create(&t[i], NULL, churn, (void *)i));
	fork_children();
	__atomic_store_n(&over, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	NEED(!cuCtxSynchronize() && !cuDeviceGraphMemTrim(0));
	NEED(!cuMemFree_v2(kept.large) && !cuMemFree_v2(kept.small) && !cuMemRelease(kept.handle));
	NEED(!cuArrayDestroy(kept.array) && !cuMemFreeAsync(kept.pooled, NULL));
	NEED(!cuGraphExecDestroy(kept.graph) && !cuCtxSynchronize());
	NEED(!cuMemPoolTrimTo(kept.pool, 0) && !cuDeviceGraphMemTrim(0));
	NEED(left() == 64 * MIB && fakegpu_used(0) == 0);
	NEED(take(64 * MIB) == CUDA_SUCCESS && take(1) == CUDA_ERROR_OUT_OF_MEMORY);
}
