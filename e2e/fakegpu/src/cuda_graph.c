/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_graph.c: graphs and their launches. A graph runs as one piece, which is as long as its
 * kernels together; what its nodes allocate is in cuda_graph_memory.c.
 */
#include "cuda_exports.h"
#include "cuda_graph.h"
#include "cuda_work.h"

#include <stdlib.h>

struct CUgraph_st *fg_graph_new(void)
{
	struct CUgraph_st *g = calloc(1, sizeof *g);
	g->end = &g->first;
	return g;
}

struct CUgraphNode_st *fg_graph_add(struct CUgraph_st *graph, int type)
{
	struct CUgraphNode_st *n = calloc(1, sizeof *n);
	n->type = type;
	*graph->end = n;
	graph->end = &n->next;
	return n;
}

void fg_graph_add_kernel(struct CUgraph_st *graph, uint64_t ns)
{
	fg_graph_add(graph, ns ? CU_GRAPH_NODE_TYPE_KERNEL : CU_GRAPH_NODE_TYPE_EMPTY)->ns = ns;
}

static void destroy(struct CUgraph_st *graph)
{
	for (struct CUgraphNode_st *n = graph->first, *next; n; n = next) {
		next = n->next;
		if (n->child)
			destroy(n->child);
		free(n);
	}
	free(graph);
}

static struct CUgraph_st *copy(const struct CUgraph_st *graph)
{
	struct CUgraph_st *to = fg_graph_new();
	for (const struct CUgraphNode_st *n = graph->first; n; n = n->next) {
		struct CUgraphNode_st *m = fg_graph_add(to, n->type);
		*m = *n;
		m->next = NULL;
		m->child = n->child ? copy(n->child) : NULL;
	}
	return to;
}

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags)
{
	if (!graph || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = fg_graph_new();
	return CUDA_SUCCESS;
}

CUresult cuGraphDestroy(CUgraph graph)
{
	if (graph)
		destroy(graph);
	return graph ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/*
 * The child is copied, as in the real driver; there one with memory can only be moved into its
 * parent.
 */
CUresult cuGraphAddChildGraphNode(CUgraphNode *node, CUgraph graph, CUgraphNode const *before,
				  size_t count, CUgraph child)
{
	(void)before, (void)count;
	if (!node || !graph || !child)
		return CUDA_ERROR_INVALID_VALUE;
	*node = fg_graph_add(graph, CU_GRAPH_NODE_TYPE_GRAPH);
	(*node)->child = copy(child);
	return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
	size_t n = 0;
	if (!graph || !count)
		return CUDA_ERROR_INVALID_VALUE;
	for (struct CUgraphNode_st *k = graph->first; k; k = k->next, n++)
		if (nodes && n < *count)
			nodes[n] = k;
	if (!nodes || n < *count)
		*count = n;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(CUgraphNode node, int *type)
{
	if (!node || !type)
		return CUDA_ERROR_INVALID_VALUE;
	*type = node->type;
	return CUDA_SUCCESS;
}

CUresult cuGraphChildGraphNodeGetGraph(CUgraphNode node, CUgraph *graph)
{
	if (!node || !node->child || !graph)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = node->child;
	return CUDA_SUCCESS;
}

/*
 * Adds up a graph's kernels and memory. An allocation in the place of an earlier one takes nothing
 * more.
 */
static void add_up(struct CUgraphExec_st *e, const struct CUgraph_st *graph)
{
	for (const struct CUgraphNode_st *n = graph->first; n; n = n->next) {
		e->ns += n->ns;
		if (n->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && !n->again)
			e->need[n->ordinal] += fg_pages(n->alloc.bytesize);
		if (n->child)
			add_up(e, n->child);
	}
}

static CUresult upload(CUgraphExec exec)
{
	pthread_mutex_lock(&fake.mutex);
	CUresult r = fg_graph_back(exec);
	pthread_mutex_unlock(&fake.mutex);
	return r;
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	if (!exec || !graph || flags & ~3ULL)
		return CUDA_ERROR_INVALID_VALUE;
	struct CUgraphExec_st *e = calloc(1, sizeof *e);
	e->graph = copy(graph);
	e->frees_first = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
	add_up(e, graph);
	pthread_mutex_lock(&fake.mutex);
	fg_graph_known(e);
	pthread_mutex_unlock(&fake.mutex);
	CUresult r = flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD ? upload(e) : CUDA_SUCCESS;
	if (r == CUDA_SUCCESS)
		*exec = e;
	else
		cuGraphExecDestroy(e);
	return r;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	return flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD ? CUDA_ERROR_INVALID_VALUE
							  : instantiate(exec, graph, flags);
}

CUresult cuGraphInstantiate(CUgraphExec *exec, CUgraph graph, CUgraphNode *failed, char *log,
			    size_t size)
{
	(void)failed, (void)log, (void)size;
	return instantiate(exec, graph, 0);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *failed, char *log,
			       size_t size)
{
	return cuGraphInstantiate(exec, graph, failed, log, size);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph,
				      CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	return params ? instantiate(exec, graph, params->flags) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph,
					   CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	return cuGraphInstantiateWithParams(exec, graph, params);
}

CUresult cuGraphExecDestroy(CUgraphExec exec)
{
	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.mutex);
	fg_graph_gone(exec);
	pthread_mutex_unlock(&fake.mutex);
	destroy(exec->graph);
	free(exec);
	return CUDA_SUCCESS;
}

/* Gives a graph its memory. What its last run has left has to be freed first. */
static CUresult begin(CUgraphExec exec)
{
	pthread_mutex_lock(&fake.mutex);
	CUresult r = !exec->frees_first && fg_graph_left(exec) ? CUDA_ERROR_INVALID_VALUE
							       : fg_graph_back(exec);
	if (r == CUDA_SUCCESS) {
		exec->calls++;
		fg_graph_runs(exec);
	}
	pthread_mutex_unlock(&fake.mutex);
	return r;
}

CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	struct CUstream_st *s = fg_stream(stream);
	if (!exec || !s)
		return CUDA_ERROR_INVALID_VALUE;
	if (fg_capture(stream, exec->ns))
		return CUDA_SUCCESS;
	CUresult r = begin(exec);
	if (r != CUDA_SUCCESS)
		return r;
	uint64_t ticket = fg_enqueue(s, exec->ns);
	pthread_mutex_lock(&fake.mutex);
	exec->calls--;
	exec->minor = fg_minor(s);
	exec->ticket = ticket;
	pthread_mutex_unlock(&fake.mutex);
	return ticket ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult cuGraphLaunch_ptsz(CUgraphExec exec, CUstream stream)
{
	return cuGraphLaunch(exec, stream);
}

CUresult cuGraphUpload(CUgraphExec exec, CUstream stream)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	return exec && fg_stream(stream) ? upload(exec) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphUpload_ptsz(CUgraphExec exec, CUstream stream)
{
	return cuGraphUpload(exec, stream);
}
