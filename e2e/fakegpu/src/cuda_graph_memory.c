/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_graph_memory.c: memory of a device that graphs hold. As CUDA documents it: an allocation has
 * its address from the moment its node is added, and memory when the graph is launched or uploaded.
 * Graphs that do not run at once share the memory; what a run leaves allocated stays in use until
 * it is freed. What is not in use stays reserved until it is trimmed.
 */
#include "cuda_exports.h"
#include "cuda_graph.h"

#include <stdlib.h>

#include "cuda_timeline.h"

static struct CUgraphExec_st *execs; /* under fake.mutex, like all below */
static struct fg_graph_piece *pieces;
static uint64_t reserved[FG_MAX_DEVICES];
static CUdeviceptr next_address = 0x7c0000000000ULL;

struct CUgraphNode_st *fg_graph_add_alloc(struct CUgraph_st *graph,
					  const CUDA_MEM_ALLOC_NODE_PARAMS *params,
					  struct CUgraphNode_st *before)
{
	struct CUgraphNode_st *n = fg_graph_add(graph, CU_GRAPH_NODE_TYPE_MEM_ALLOC),
			      *old = graph->first;
	uint64_t pages = fg_pages(params->bytesize);
	n->alloc = *params;
	n->ordinal = params->poolProps.location.id;
	while (before && old &&
	       (old->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || old->at != before->at))
		old = old->next;
	if (before && before->type == CU_GRAPH_NODE_TYPE_MEM_FREE && !before->freed && old &&
	    old != n && old->ordinal == n->ordinal && fg_pages(old->alloc.bytesize) >= pages) {
		n->at = before->at;
		before->freed = n->again = 1;
	} else {
		n->at = next_address;
		next_address += pages + FG_PAGE;
	}
	n->alloc.dptr = n->at;
	return n;
}

struct CUgraphNode_st *fg_graph_add_free(struct CUgraph_st *graph, CUdeviceptr pointer)
{
	struct CUgraphNode_st *free_node = fg_graph_add(graph, CU_GRAPH_NODE_TYPE_MEM_FREE);
	free_node->at = pointer;
	for (struct CUgraphNode_st *n = graph->first; n; n = n->next)
		if (n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && n->at == pointer)
			n->freed = 1;
	return free_node;
}

int fg_graph_left(const struct CUgraphExec_st *exec)
{
	for (const struct fg_graph_piece *p = pieces; p; p = p->next)
		if (p->of == exec)
			return 1;
	return 0;
}

static int is_busy(const struct CUgraphExec_st *e)
{
	return e->calls || (e->ticket && !fg_timeline_passed(e->minor, e->ticket));
}

/* Bytes that graphs use now, but for one. */
static uint64_t used_by_others(int ordinal, const struct CUgraphExec_st *one)
{
	uint64_t bytes = 0;
	for (const struct CUgraphExec_st *e = execs; e; e = e->next)
		bytes += e != one && is_busy(e) ? e->need[ordinal] : 0;
	for (const struct fg_graph_piece *p = pieces; p; p = p->next)
		bytes += p->ordinal == ordinal && (!one || p->of != one) &&
					 !(p->of && is_busy(p->of))
				 ? p->bytes
				 : 0;
	return bytes;
}

/* A run may have left something, which its memory holds already. */
CUresult fg_graph_back(struct CUgraphExec_st *exec)
{
	for (int i = 0; i < fake.count; i++) {
		uint64_t want = exec->need[i] ? used_by_others(i, exec) + exec->need[i] : 0;
		if (want <= reserved[i])
			continue;
		CUresult r = fg_take(i, want - reserved[i]);
		if (r != CUDA_SUCCESS)
			return r;
		reserved[i] = want;
	}
	return CUDA_SUCCESS;
}

int fg_graph_free(CUdeviceptr pointer)
{
	pthread_mutex_lock(&fake.mutex);
	struct fg_graph_piece **at = &pieces, *p;
	while ((p = *at) && p->at != pointer)
		at = &p->next;
	if (p)
		*at = p->next;
	pthread_mutex_unlock(&fake.mutex);
	free(p);
	return p != NULL;
}

/* Takes out the pieces of a run, or the one at an address. */
static void drop_pieces(const struct CUgraphExec_st *of, CUdeviceptr address)
{
	for (struct fg_graph_piece **at = &pieces; *at;) {
		struct fg_graph_piece *p = *at;
		if (of ? p->of != of : p->at != address) {
			at = &p->next;
			continue;
		}
		*at = p->next;
		free(p);
	}
}

static void leave_pieces(const struct CUgraphExec_st *exec, const struct CUgraph_st *graph)
{
	for (const struct CUgraphNode_st *n = graph->first; n; n = n->next) {
		if (n->type == CU_GRAPH_NODE_TYPE_GRAPH)
			leave_pieces(exec, n->child);
		if (n->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
			drop_pieces(NULL, n->at); /* of another graph's, too */
		if (n->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || n->freed)
			continue;
		struct fg_graph_piece *p = calloc(1, sizeof *p);
		*p = (struct fg_graph_piece){.at = n->at,
					     .bytes = fg_pages(n->alloc.bytesize),
					     .ordinal = n->ordinal,
					     .of = (struct CUgraphExec_st *)exec,
					     .next = pieces};
		pieces = p;
	}
}

void fg_graph_runs(const struct CUgraphExec_st *exec)
{
	drop_pieces(exec, 0);
	leave_pieces(exec, exec->graph);
}

void fg_graph_known(struct CUgraphExec_st *exec)
{
	exec->next = execs;
	execs = exec;
}

/* What it has left allocated stays. */
void fg_graph_gone(struct CUgraphExec_st *exec)
{
	struct CUgraphExec_st **at = &execs;
	while (*at && *at != exec)
		at = &(*at)->next;
	if (*at)
		*at = exec->next;
	for (struct fg_graph_piece *p = pieces; p; p = p->next)
		if (p->of == exec)
			p->of = NULL;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!fg_gpu(device))
		return CUDA_ERROR_INVALID_DEVICE;
	int used = attribute == CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT;
	if (!value || (!used && attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.mutex);
	*(uint64_t *)value = used ? used_by_others(device, NULL) : reserved[device];
	pthread_mutex_unlock(&fake.mutex);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!fg_gpu(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&fake.mutex);
	uint64_t used = used_by_others(device, NULL);
	if (reserved[device] > used) {
		fg_give(device, reserved[device] - used);
		reserved[device] = used;
	}
	pthread_mutex_unlock(&fake.mutex);
	return CUDA_SUCCESS;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, CUgraphNode const *before,
				size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!node || !graph || !params || !params->bytesize ||
	    !fg_gpu(params->poolProps.location.id) || (count && !before))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.mutex);
	*node = fg_graph_add_alloc(graph, params, count ? before[0] : NULL);
	params->dptr = (*node)->at;
	pthread_mutex_unlock(&fake.mutex);
	return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, CUgraphNode const *before,
			       size_t count, CUdeviceptr pointer)
{
	(void)before, (void)count;
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!node || !graph || !pointer)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.mutex);
	*node = fg_graph_add_free(graph, pointer);
	pthread_mutex_unlock(&fake.mutex);
	return CUDA_SUCCESS;
}

CUresult cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	if (!node || node->type != CU_GRAPH_NODE_TYPE_MEM_ALLOC || !params)
		return CUDA_ERROR_INVALID_VALUE;
	*params = node->alloc;
	return CUDA_SUCCESS;
}
