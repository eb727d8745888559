/* SPDX-License-Identifier: Apache-2.0 */
/* probe_graphs.c: graphs that allocate. */
#define _GNU_SOURCE
#include "probe_sized.h"

#include <pthread.h>

CUresult cuGraphInstantiate(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
CUresult cuGraphInstantiate_v2(CUgraphExec *, CUgraph, CUgraphNode *, char *, size_t);
CUresult cuGraphInstantiateWithParams(CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *);
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *, CUgraph, CUDA_GRAPH_INSTANTIATE_PARAMS *);
CUresult cuGraphAddChildGraphNode(CUgraphNode *, CUgraph, CUgraphNode const *, size_t, CUgraph);
CUresult cuDeviceGetGraphMemAttribute(CUdevice, int, void *);
CUresult cuGraphUpload(CUgraphExec, CUstream);
CUresult cuGraphUpload_ptsz(CUgraphExec, CUstream);
CUresult cuGraphLaunch_ptsz(CUgraphExec, CUstream);

static uint64_t pages(uint64_t bytes)
{
	return (bytes + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
}

static CUgraph empty(void)
{
	CUgraph graph;
	NEED(cuGraphCreate(&graph, 0) == CUDA_SUCCESS);
	return graph;
}

/* Adds an allocation after a node (NULL: after none); its address, and the node in *node. */
static CUdeviceptr add(CUgraph graph, CUdevice device, uint64_t bytes, CUgraphNode *node,
		       CUgraphNode after)
{
	CUDA_MEM_ALLOC_NODE_PARAMS p = {
		.poolProps = {.allocType = 1, .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}},
		.bytesize = bytes};
	NEED(cuGraphAddMemAllocNode(node, graph, after ? &after : NULL, after != NULL, &p) ==
	     CUDA_SUCCESS);
	return p.dptr;
}

static CUgraphExec ready(CUgraph graph, unsigned long long flags)
{
	CUgraphExec exec;
	NEED(cuGraphInstantiateWithFlags(&exec, graph, flags) == CUDA_SUCCESS &&
	     cuGraphDestroy(graph) == CUDA_SUCCESS);
	return exec;
}

/* A graph that allocates and frees. */
static CUgraph pair(CUdevice device, uint64_t bytes)
{
	CUgraph graph = empty();
	CUgraphNode node;
	CUdeviceptr at = add(graph, device, bytes, &node, NULL);
	NEED(cuGraphAddMemFreeNode(&node, graph, &node, 1, at) == CUDA_SUCCESS);
	return graph;
}

/* 768 MiB of 64: twelve nodes of 64. */
void probe_graph_refused(void)
{
	CUgraph graph = empty();
	CUgraphNode node;
	use_device(0);
	for (int i = 0; i < 12; i++)
		add(graph, 0, 64 * MIB, &node, NULL);
	CUgraphExec exec = ready(graph, 0);
	NEED(cuGraphLaunch(exec, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuGraphLaunch_ptsz(exec, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuGraphUpload(exec, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuGraphUpload_ptsz(exec, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(truth_high(0) == 0 && left() == limit_of(0) && take(limit_of(0)) == CUDA_SUCCESS);
}

static void refused(CUgraphExec exec)
{
	NEED(cuGraphLaunch(exec, NULL) == CUDA_ERROR_OUT_OF_MEMORY &&
	     cuGraphExecDestroy(exec) == CUDA_SUCCESS);
	NEED(truth_high(0) == 0 && left() == limit_of(0));
}

/* A graph of 66 MiB, however it is made ready: by itself, recorded, and within another. */
void probe_graph_ways(void)
{
	CUgraphExec exec;
	CUDA_GRAPH_INSTANTIATE_PARAMS plain = {0},
				      upload = {.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD};
	CUgraphNode node;
	CUstream stream;
	CUdeviceptr at;
	use_device(0);
	CUgraph graph = pair(0, 65 * MIB), outer = empty(), outermost = empty(), recorded;
	NEED(cuGraphInstantiate(&exec, graph, NULL, NULL, 0) == CUDA_SUCCESS);
	refused(exec);
	NEED(cuGraphInstantiate_v2(&exec, graph, NULL, NULL, 0) == CUDA_SUCCESS);
	refused(exec);
	NEED(cuGraphInstantiateWithParams(&exec, graph, &plain) == CUDA_SUCCESS);
	refused(exec);
	NEED(cuGraphInstantiateWithParams_ptsz(&exec, graph, &plain) == CUDA_SUCCESS);
	refused(exec);
	NEED(cuGraphInstantiateWithParams(&exec, graph, &upload) == CUDA_ERROR_OUT_OF_MEMORY &&
	     truth_high(0) == 0);
	NEED(cuGraphInstantiateWithParams_ptsz(&exec, graph, &upload) == CUDA_ERROR_OUT_OF_MEMORY &&
	     left() == limit_of(0));
	NEED(cuGraphAddChildGraphNode(&node, outer, NULL, 0, graph) == CUDA_SUCCESS);
	NEED(cuGraphAddChildGraphNode(&node, outermost, NULL, 0, outer) == CUDA_SUCCESS);
	refused(ready(outermost, 0));
	NEED(cuStreamCreate(&stream, 0) == CUDA_SUCCESS &&
	     cuStreamBeginCapture_v2(stream, 0) == CUDA_SUCCESS);
	NEED(cuMemAllocAsync(&at, 40 * MIB, stream) == CUDA_SUCCESS &&
	     cuMemAllocAsync(&at, 26 * MIB, stream) == CUDA_SUCCESS);
	NEED(cuStreamEndCapture(stream, &recorded) == CUDA_SUCCESS);
	refused(ready(recorded, 0));
	exec = ready(pair(0, 64 * MIB), 0);
	NEED(cuStreamBeginCapture_v2(stream, 0) == CUDA_SUCCESS &&
	     cuGraphLaunch(exec, stream) == CUDA_SUCCESS); /* no memory yet */
	NEED(left() == limit_of(0) && cuStreamEndCapture(stream, &recorded) == CUDA_SUCCESS);
	NEED(cuGraphUpload(exec, stream) == CUDA_SUCCESS && truth_used(0) == limit_of(0) &&
	     left() == 0);
	NEED(cuGraphLaunch(exec, stream) == CUDA_SUCCESS &&
	     cuGraphLaunch(exec, stream) == CUDA_SUCCESS && left() == 0);
	NEED(cuCtxSynchronize() == CUDA_SUCCESS && cuGraphExecDestroy(exec) == CUDA_SUCCESS);
	graph = pair(0, 60 * MIB);
	NEED(cuGraphInstantiateWithParams(&exec, graph, &upload) == CUDA_SUCCESS &&
	     cuGraphLaunch(exec, NULL) == CUDA_SUCCESS);
	NEED(cuCtxSynchronize() == CUDA_SUCCESS && cuDeviceGraphMemTrim(0) == CUDA_SUCCESS &&
	     left() == limit_of(0));
	NEED(truth_high(0) == limit_of(0) && truth_used(0) == 0);
}

/*
 * Allocations of a graph in one place take it once, and graphs that run one after the other share.
 */
void probe_graph_reuse(void)
{
	CUgraph graph = empty();
	CUgraphNode node, last = NULL;
	use_device(0);
	for (int i = 0; i < 5; i++) {
		CUdeviceptr at = add(graph, 0, 60 * MIB, &node, last);
		NEED(cuGraphAddMemFreeNode(&last, graph, &node, 1, at) == CUDA_SUCCESS);
	}
	CUgraphExec a = ready(graph, 0), b = ready(pair(0, 64 * MIB), 0);
	NEED(cuGraphLaunch(a, NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS &&
	     left() == 4 * MIB);
	NEED(cuGraphLaunch(b, NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS &&
	     left() == 0);
	NEED(cuGraphLaunch(a, NULL) == CUDA_SUCCESS && cuGraphLaunch(a, NULL) == CUDA_SUCCESS &&
	     left() == 0);
	NEED(cuCtxSynchronize() == CUDA_SUCCESS && take(2 * MIB) == CUDA_ERROR_OUT_OF_MEMORY);
	graph = empty(); /* what a run leaves is in use until it is freed */
	CUdeviceptr stays = add(graph, 0, 30 * MIB, &node, NULL);
	CUgraphExec c = ready(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
	NEED(cuGraphLaunch(c, NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	NEED(cuGraphLaunch(c, NULL) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	NEED(cuGraphLaunch(b, NULL) == CUDA_ERROR_OUT_OF_MEMORY &&
	     left() == 34 * MIB); /* the rest was trimmed */
	NEED(cuGraphExecDestroy(c) == CUDA_SUCCESS &&
	     cuGraphLaunch(b, NULL) == CUDA_ERROR_OUT_OF_MEMORY);
	NEED(cuMemFreeAsync(stays, NULL) == CUDA_SUCCESS &&
	     cuGraphLaunch(b, NULL) == CUDA_SUCCESS && left() == 0);
	NEED(cuCtxSynchronize() == CUDA_SUCCESS && cuDeviceGraphMemTrim(0) == CUDA_SUCCESS &&
	     left() == limit_of(0));
	NEED(truth_high(0) == limit_of(0));
}

#define GRAPHS 6

static int threads;
static pthread_barrier_t start;

struct ready {
	CUgraphExec exec;
	uint64_t need;
	CUdevice device;
};

static void make(struct ready *g, uint64_t *seed)
{
	g->device = (CUdevice)draw(seed, 2);
	CUgraphNode node;
	uint64_t bytes = 1 + draw(seed, 24 * MIB), more = 1 + draw(seed, 16 * MIB);
	CUgraph graph = pair(g->device, bytes), outer = empty();
	CUdeviceptr at = add(graph, g->device, more, &node, NULL);
	g->need = pages(bytes) + pages(more);
	NEED(cuGraphAddMemFreeNode(&node, graph, &node, 1, at) == CUDA_SUCCESS);
	NEED(cuGraphAddChildGraphNode(&node, outer, NULL, 0, graph) == CUDA_SUCCESS &&
	     cuGraphDestroy(graph) == CUDA_SUCCESS);
	g->exec = ready(outer, 0);
}

static uint64_t graph_memory(CUdevice device, int attribute)
{
	uint64_t bytes;
	NEED(cuDeviceGetGraphMemAttribute(device, attribute, &bytes) == CUDA_SUCCESS);
	return bytes;
}

/* Alone, nothing is refused that would have fitted when all that is idle is trimmed. */
static void launch(const struct ready *g, CUstream stream, uint64_t *seed)
{
	CUresult r = draw(seed, 4) ? cuGraphLaunch(g->exec, stream)
				   : cuGraphUpload(g->exec, stream);
	NEED(r == CUDA_SUCCESS || r == CUDA_ERROR_OUT_OF_MEMORY);
	if (threads > 1 || r == CUDA_SUCCESS)
		return;
	uint64_t want = graph_memory(g->device, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) + g->need;
	uint64_t has = graph_memory(g->device, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
	NEED(want > has && truth_used(g->device) + want - has > limit_of(g->device));
}

/* Plain memory beside the graphs. */
static void toggle(CUdeviceptr *p, uint64_t *seed)
{
	if (*p)
		NEED(cuMemFree_v2(*p) == CUDA_SUCCESS);
	if (*p || cuMemAlloc_v2(p, 2 * MIB * (1 + draw(seed, 8))) != CUDA_SUCCESS)
		*p = 0;
}

static void *random_graphs(void *argument)
{
	uint64_t seed = 0x9e3779b97f4a7c15ULL * (1 + (uintptr_t)argument);
	struct ready graph[GRAPHS];
	CUdeviceptr plain[2][8] = {{0}};
	CUstream stream[2];
	for (int d = 0; d < 2; d++) {
		use_device(d);
		NEED(cuStreamCreate(&stream[d], 0) == CUDA_SUCCESS);
	}
	for (int i = 0; i < GRAPHS; i++)
		make(&graph[i], &seed);
	pthread_barrier_wait(&start);
	for (int i = 0; i < 40000 / threads; i++) {
		struct ready *g = &graph[draw(&seed, GRAPHS)];
		CUdevice d = (CUdevice)draw(&seed, 2);
		use_device(d);
		switch (draw(&seed, 8)) {
		case 0:
			NEED(cuGraphExecDestroy(g->exec) == CUDA_SUCCESS);
			make(g, &seed);
			break;
		case 1: NEED(cuDeviceGraphMemTrim(d) == CUDA_SUCCESS); break;
		case 2:
		case 3: toggle(&plain[d][draw(&seed, 8)], &seed); break;
		default: use_device(g->device), launch(g, stream[g->device], &seed);
		}
	}
	for (int i = 0; i < GRAPHS; i++)
		NEED(cuGraphExecDestroy(graph[i].exec) == CUDA_SUCCESS);
	for (int i = 0; i < 16; i++)
		NEED(!plain[i / 8][i % 8] || cuMemFree_v2(plain[i / 8][i % 8]) == CUDA_SUCCESS);
	return NULL;
}

static void random_threads(int count)
{
	pthread_t thread[16];
	threads = count;
	use_device(0);
	pthread_barrier_init(&start, NULL, (unsigned)count);
	for (int i = 0; i < count; i++)
		NEED(!pthread_create(&thread[i], NULL, random_graphs, (void *)(uintptr_t)i));
	for (int i = 0; i < count; i++)
		NEED(!pthread_join(thread[i], NULL));
	for (CUdevice d = 0; d < 2; d++) {
		printf("device %d: at most %llu of %llu MiB\n", d,
		       (unsigned long long)(truth_high(d) / MIB),
		       (unsigned long long)(limit_of(d) / MIB));
		NEED(truth_high(d) <= limit_of(d));
		use_device(d);
		NEED(cuCtxSynchronize() == CUDA_SUCCESS &&
		     cuDeviceGraphMemTrim(d) == CUDA_SUCCESS && truth_used(d) == 0);
		NEED(take(limit_of(d)) == CUDA_SUCCESS); /* all of it is to have */
	}
}

void probe_graph_alone(void)
{
	random_threads(1);
}

void probe_graph_together(void)
{
	random_threads(8);
}
