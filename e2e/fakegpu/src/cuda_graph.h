/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_graph.h: what a graph of the fake consists of. Nodes are kept in the order in which they
 * were added, and run in that order; a graph that can be run has the sum of the kernels and the
 * memory that its nodes allocate.
 */
#ifndef FAKEGPU_CUDA_GRAPH_H
#define FAKEGPU_CUDA_GRAPH_H

#include "cuda_fake.h"

struct CUgraphNode_st {
	int type; /* CU_GRAPH_NODE_TYPE_* */
	uint64_t ns; /* kernel: how long it works */
	int ordinal; /* allocation: of which device */
	CUDA_MEM_ALLOC_NODE_PARAMS alloc;
	CUdeviceptr at; /* allocation and free */
	int again; /* allocation: in the place of one that was freed before it */
	int freed; /* allocation: by a node of the same graph; free: the place is used again */
	struct CUgraph_st *child;
	struct CUgraphNode_st *next;
};

struct CUgraph_st {
	struct CUgraphNode_st *first, **end;
	int spoiled; /* its capture was */
};

/* Memory that graphs which have run still have. */
struct fg_graph_piece {
	CUdeviceptr at;
	uint64_t bytes;
	int ordinal;
	struct CUgraphExec_st *of;
	struct fg_graph_piece *next;
};

struct CUgraphExec_st {
	uint64_t ns;
	struct CUgraph_st *graph; /* a copy */
	int frees_first; /* what an earlier run has left */
	uint64_t need[FG_MAX_DEVICES]; /* bytes, by ordinal */
	int calls; /* launches that are being made */
	int minor;
	uint64_t ticket; /* of its last launch; 0: none */
	struct CUgraphExec_st *next;
};

struct CUgraph_st *fg_graph_new(void);
struct CUgraphNode_st *fg_graph_add(struct CUgraph_st *graph, int type);
void fg_graph_add_kernel(struct CUgraph_st *graph, uint64_t ns);
/*
 * A node that allocates pages of a device; in a place that `before`, a node that frees, has left,
 * if it may.
 */
struct CUgraphNode_st *fg_graph_add_alloc(struct CUgraph_st *graph,
					  const CUDA_MEM_ALLOC_NODE_PARAMS *params,
					  struct CUgraphNode_st *before);
/* The node that was added last, after which one of the same stream runs; NULL: none. */
static inline struct CUgraphNode_st *fg_graph_last(const struct CUgraph_st *graph)
{
	struct CUgraphNode_st *n = graph->first;
	while (n && n->next)
		n = n->next;
	return n;
}
struct CUgraphNode_st *fg_graph_add_free(struct CUgraph_st *graph, CUdeviceptr pointer);

/* The memory of a graph is there (under fake.mutex): reserves what is missing. */
CUresult fg_graph_back(struct CUgraphExec_st *exec);
/* It runs (under fake.mutex): what its nodes allocate is in use, what they free is not. */
void fg_graph_runs(const struct CUgraphExec_st *exec);
/* Under fake.mutex. */
void fg_graph_known(struct CUgraphExec_st *exec);
void fg_graph_gone(struct CUgraphExec_st *exec);
int fg_graph_left(const struct CUgraphExec_st *exec);

/* What a stream records into; NULL when it does not. */
struct CUgraph_st *fg_recorded(CUstream stream);

#endif
