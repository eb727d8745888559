/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graphs.h: memory of allocation nodes in graphs. The driver reserves it when a graph is launched
 * or uploaded and keeps it for the next one; what that can take more is charged before.
 * Thread-safe.
 */
#ifndef GRAPHS_H
#define GRAPHS_H

#include <stdint.h>

#include "context/capture.h"
#include "cuda_abi.h"
#include "model/limits.h"

/* What the allocation nodes of a graph take, children included. */
struct graph_need {
	int allocates; /* it has such nodes at all, whatever device they are of */
	int any;
	uint64_t bytes[HAMI_DEVICES]; /* by index in the limits */
	CUdevice ordinal[HAMI_DEVICES]; /* CUDA's numbers of the devices with bytes */
};
/*
 * Asks the driver about a graph. 0, or -1 when it does not say. Where no memory is given out, only
 * need->allocates is told.
 */
int graph_measure(struct graph_need *need, CUgraph graph);

/* A graph was made ready to run, `uploaded` with its memory; or it is about to be changed. */
void graph_exec_made(CUgraphExec exec, const struct graph_need *need, int uploaded);
void graph_exec_update(CUgraphExec exec, const struct graph_need *need);

/* Around a launch or an upload of a graph, or making one ready with an upload. */
struct graph_run {
	int unknown; /* not seen to be made: what it took is charged afterwards */
	int recorded; /* into another graph, which takes the memory */
	CUgraphExec exec;
	CUstream stream;
	struct capture_view before;
	struct graph_need need;
	uint64_t serial[HAMI_DEVICES]; /* which run of a device it is, 0: not alone there */
};
/* Reserves what it may take more. Not CUDA_SUCCESS: refused, and nothing more is to be done. */
CUresult graph_run_begin(struct graph_run *run, CUgraphExec exec, CUstream stream);
CUresult graph_upload_begin(struct graph_run *run, const struct graph_need *need);
CUresult graph_run_end(struct graph_run *run, CUresult result);

/* Around the driver's destruction of one. */
struct graph_exec;
struct graph_exec *graph_exec_take(CUgraphExec exec);
void graph_exec_settle(struct graph_exec *e, CUresult result);

/* Has the driver give back what no graph of a device uses any more, and credits that. */
CUresult graph_trim(CUresult (*trim)(CUdevice), CUdevice ordinal);

/*
 * Charges what graphs have reserved of a device (by CUDA ordinal). Over the limit, what no graph
 * uses any more is given back first.
 */
void graphs_charge(CUdevice ordinal);

/* Reads again what graphs hold of a device (an index in the limits). */
void graphs_refresh(int device);

/* In a child after fork. */
void graphs_after_fork(void);

#endif
