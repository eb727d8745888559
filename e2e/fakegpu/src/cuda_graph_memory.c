/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_graph_memory.c: memory of a device that graphs hold. Simpler than the real thing: it
 * is reserved when the node is added and not when the graph runs, and a node to free it
 * frees it at once. As there, what was freed stays reserved until it is trimmed.
 */
#include "cuda_exports.h"
#include "cuda_fake.h"

#include <stdlib.h>

struct node {
	CUdeviceptr at;
	uint64_t bytes;
	int ordinal, used;
	struct node *next;
};

static struct node *nodes; /* under fake.mutex */
static CUdeviceptr next_address = 0x7c0000000000ULL;

static uint64_t sum(int ordinal, int only_used)
{
	uint64_t bytes = 0;
	for (const struct node *n = nodes; n; n = n->next)
		if (n->ordinal == ordinal && (n->used || !only_used))
			bytes += n->bytes;
	return bytes;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, int attribute, void *value)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!fg_gpu(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!value || (attribute != CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT && attribute != CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT))
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.mutex);
	*(uint64_t *)value = sum(device, attribute == CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT);
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
	for (struct node **at = &nodes; *at;) {
		struct node *n = *at;
		if (n->ordinal != device || n->used) {
			at = &n->next;
			continue;
		}
		*at = n->next;
		fg_give(device, n->bytes);
		free(n);
	}
	pthread_mutex_unlock(&fake.mutex);
	return CUDA_SUCCESS;
}

CUresult cuGraphAddMemAllocNode(struct CUgraphNode_st **node, struct CUgraph_st *graph, struct CUgraphNode_st *const *before,
				size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	(void)graph, (void)before, (void)count;
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!node || !params || !params->bytesize || !fg_gpu(params->poolProps.location.id))
		return CUDA_ERROR_INVALID_VALUE;
	struct node *n = calloc(1, sizeof *n);
	*n = (struct node){.bytes = fg_pages(params->bytesize), .ordinal = params->poolProps.location.id, .used = 1};
	pthread_mutex_lock(&fake.mutex);
	CUresult r = fg_take(n->ordinal, n->bytes);
	if (r == CUDA_SUCCESS) {
		params->dptr = n->at = next_address;
		next_address += n->bytes;
		n->next = nodes;
		nodes = n;
		*node = (struct CUgraphNode_st *)n;
	}
	pthread_mutex_unlock(&fake.mutex);
	if (r != CUDA_SUCCESS)
		free(n);
	return r;
}

CUresult cuGraphAddMemFreeNode(struct CUgraphNode_st **node, struct CUgraph_st *graph, struct CUgraphNode_st *const *before,
			       size_t count, CUdeviceptr pointer)
{
	(void)graph, (void)before, (void)count;
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	pthread_mutex_lock(&fake.mutex);
	struct node *n = nodes;
	while (n && (n->at != pointer || !n->used))
		n = n->next;
	if (n)
		n->used = 0;
	pthread_mutex_unlock(&fake.mutex);
	if (n && node)
		*node = (struct CUgraphNode_st *)n;
	return n && node ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
