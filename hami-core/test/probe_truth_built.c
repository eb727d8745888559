/* SPDX-License-Identifier: Apache-2.0 */
/* probe_truth_built.c: memory that takes several calls: each is judged by itself. */
#include "probe_truth.h"

#define PARTS 3
#define HOST_PART 1 /* in `levels`: a bit for each part that is of the host */

static CUresult create_part(struct thread *t, struct piece *p, int i, uint64_t bytes)
{
	CUmemAllocationProp prop = {.type = 1, .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
	struct piece part = {
		.kind = KIND_HANDLE, .device = p->device, .bytes = bytes, .ask = bytes};
	CUresult r = p->levels & (HOST_PART << i)
			     ? via.cuMemCreate(&part.handle[0], bytes, &prop, 0)
			     : attempt(t, &part);
	p->handle[i] = part.handle[0];
	return r;
}

/*
 * A range with handles of the host and of the device side by side; p->variant: handles are released
 * before they are unmapped.
 */
static CUresult build_mapping(struct thread *t, struct piece *p)
{
	uint64_t bytes = truth_pages(p->bytes / PARTS + 1);
	int made = 0;
	p->bytes = bytes;
	p->levels = (unsigned int)truth_below(&t->random, 1 << PARTS);
	while (made < PARTS && create_part(t, p, made, bytes) == CUDA_SUCCESS)
		made++;
	int ok = made == PARTS &&
		 via.cuMemAddressReserve(&p->at, PARTS * bytes, 0, 0, 0) == CUDA_SUCCESS;
	for (int i = 0; ok && i < PARTS; i++) {
		CUmemGenericAllocationHandle again;
		if (via.cuMemMap(p->at + (uint64_t)i * bytes, bytes, 0, p->handle[i], 0))
			fail("cuMemMap of part %d failed", i);
		if (via.cuMemRetainAllocationHandle(
			    &again, (void *)(uintptr_t)(p->at + (uint64_t)i * bytes)) ||
		    again != p->handle[i] || via.cuMemRelease(again))
			fail("part %d cannot be retained by its address", i);
	}
	flight_without_ask();
	for (int i = 0; i < made && (!ok || p->variant); i++)
		via.cuMemRelease(p->handle[i]);
	flight_over();
	return ok ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult demolish_mapping(const struct piece *p)
{
	CUresult r = via.cuMemUnmap(p->at, PARTS * p->bytes);
	for (int i = 0; i < PARTS && !p->variant; i++)
		r = r ? r : via.cuMemRelease(p->handle[i]);
	return r ? r : via.cuMemAddressFree(p->at, PARTS * p->bytes);
}

static CUarrayMapInfo tile(const struct piece *p, unsigned int i, int operation)
{
	return (CUarrayMapInfo){.resourceType = CU_RESOURCE_TYPE_ARRAY,
				.resource = {.array = p->object},
				.subresourceType = CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_SPARSE_LEVEL,
				.subresource = {.sparseLevel = {.offsetX = i * 64,
								.extentWidth = 64,
								.extentHeight = 64,
								.extentDepth = 1}},
				.memOperationType = operation,
				.memHandle = {p->handle[i]},
				.deviceBitMask = 1};
}

static CUresult build_sparse(struct thread *t, struct piece *p)
{
	CUDA_ARRAY3D_DESCRIPTOR shape = {
		256, 64, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, CUDA_ARRAY3D_SPARSE};
	unsigned int made = 0;
	p->bytes = truth_pages(p->bytes / PARTS + 1);
	p->levels = 0;
	if (via.cuArray3DCreate_v2((CUarray *)&p->object, &shape))
		fail("a sparse array is refused");
	while (made < PARTS && create_part(t, p, (int)made, p->bytes) == CUDA_SUCCESS) {
		CUarrayMapInfo map = tile(p, made, CU_MEM_OPERATION_TYPE_MAP);
		if (via.cuMemMapArrayAsync(&map, 1, t->stream[p->device]) ||
		    via.cuMemRelease(p->handle[made]))
			fail("a tile cannot be mapped");
		made++;
	}
	if (made == PARTS)
		return CUDA_SUCCESS;
	flight_without_ask();
	via.cuArrayDestroy(p->object);
	flight_over();
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult demolish_sparse(struct thread *t, const struct piece *p)
{
	CUarrayMapInfo gone[2] = {tile(p, 0, CU_MEM_OPERATION_TYPE_UNMAP),
				  tile(p, 2, CU_MEM_OPERATION_TYPE_UNMAP)};
	CUresult r = p->variant & 1 ? via.cuMemMapArrayAsync(gone, 2, t->stream[p->device])
				    : CUDA_SUCCESS;
	return r ? r : via.cuArrayDestroy(p->object);
}

static CUresult launch(struct thread *t, const struct piece *p, CUgraphExec exec, uint64_t ask)
{
	struct piece l = {.kind = KIND_LAUNCH,
			  .device = p->device,
			  .bytes = p->bytes,
			  .ask = ask,
			  .exec = exec,
			  .stream = t->stream[p->device]};
	return attempt(t, &l);
}

/* Launches a graph a few times and destroys it: what it used stays reserved until it is trimmed. */
static CUresult run_graph(struct thread *t, const struct piece *p, CUgraph graph, uint64_t ask)
{
	CUgraphExec exec;
	CUresult r = via.cuGraphInstantiateWithFlags(&exec, graph, 0);
	if (r)
		return r;
	for (int i = 0; r == CUDA_SUCCESS && i < 1 + p->variant % 2; i++)
		r = launch(t, p, exec, ask);
	flight_without_ask();
	via.cuStreamSynchronize(t->stream[p->device]);
	via.cuGraphExecDestroy(exec);
	flight_over();
	return r;
}

static CUresult build_capture(struct thread *t, struct piece *p)
{
	CUstream s = t->stream[p->device];
	CUgraph graph = NULL;
	CUdeviceptr at;
	CUresult r = via.cuStreamBeginCapture_v2(s, CU_STREAM_CAPTURE_MODE_RELAXED);
	if (r)
		return r;
	if (p->kind == KIND_CAPTURE &&
	    (via.cuMemAllocAsync(&at, p->bytes, s) || via.cuMemFreeAsync(at, s)))
		fail("an allocation cannot be recorded");
	r = via.cuStreamEndCapture(s, &graph);
	if (r || p->kind != KIND_CAPTURE) {
		p->object = graph;
		return r;
	}
	r = run_graph(t, p, graph, p->ask);
	via.cuGraphDestroy(graph);
	return r;
}

/* A graph of one to three nodes, each freed before the next. */
static CUresult build_graph(struct thread *t, struct piece *p)
{
	uint64_t ask = 0, count = 1 + truth_below(&t->random, 3);
	struct CUgraphNode_st *node;
	CUresult r = build_capture(t, p);
	for (uint64_t i = 0; r == CUDA_SUCCESS && i < count; i++) {
		struct piece n = *p;
		n.kind = KIND_NODE;
		ask += n.ask;
		r = attempt(t, &n);
		if (r == CUDA_SUCCESS && via.cuGraphAddMemFreeNode(&node, p->object, NULL, 0, n.at))
			fail("a node cannot be freed");
	}
	if (r == CUDA_SUCCESS)
		r = run_graph(t, p, p->object, ask);
	via.cuGraphDestroy(p->object);
	return r;
}

/* A context with a few blocks, limits of its own, and the memory of both when it is destroyed. */
static CUresult build_context(struct thread *t, struct piece *p)
{
	CUcontext made, popped;
	CUresult r = via.cuCtxCreate_v2(&made, 0, p->device);
	if (r)
		return r;
	t->current = NULL;
	p->object = made;
	p->owner = t->index;
	for (uint64_t i = 0, n = truth_below(&t->random, 5); r == CUDA_SUCCESS && i < n; i++) {
		struct piece inner;
		int kind = (int[]){KIND_PLAIN, KIND_MANAGED, KIND_PITCH, KIND_ARRAY,
				   KIND_LIMIT}[truth_below(&t->random, 5)];
		if (!(board->program.kinds & 1u << kind))
			continue;
		draw(t, &inner, (enum truth_kind)kind, p->device);
		r = inner.bytes <= 64 * MIB ? attempt(t, &inner) : CUDA_SUCCESS;
	}
	via.cuCtxPopCurrent_v2(&popped);
	if (r) {
		struct piece context = *p;
		context.kind = KIND_CONTEXT;
		dispose(t, &context);
	}
	return r;
}

CUresult build(struct thread *t, struct piece *p)
{
	switch (p->kind) {
	case KIND_MAPPING: return build_mapping(t, p);
	case KIND_SPARSE: return build_sparse(t, p);
	case KIND_GRAPH: return build_graph(t, p);
	case KIND_CAPTURE: return build_capture(t, p);
	case KIND_CONTEXT: return build_context(t, p);
	default: return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult demolish(struct thread *t, const struct piece *p)
{
	switch (p->kind) {
	case KIND_MAPPING: return demolish_mapping(p);
	case KIND_SPARSE: return demolish_sparse(t, p);
	case KIND_CONTEXT: return via.cuCtxDestroy_v2(p->object);
	default: return CUDA_SUCCESS;
	}
}
