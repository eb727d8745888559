/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_graph_memory.c: graphs made ready to run, uploaded and destroyed, and their memory (see
 * graphs.h).
 */
#include "driver/resolve.h"
#include "memory/graphs.h"
#include "settings/settings.h"

/* Where no memory is given out, no graph is made ready that would take some when it runs. */
static CUresult admit_graph(CUgraph graph)
{
	struct graph_need need;
	if (settings_gate() != GATE_CLOSED)
		return CUDA_SUCCESS;
	(void)graph_measure(&need, graph);
	return need.allocates ? CUDA_ERROR_NOT_PERMITTED : CUDA_SUCCESS;
}

/* Books a graph that was made ready. One that the driver says nothing of stays unknown. */
static CUresult note_instantiated(CUresult result, const CUgraphExec *exec, CUgraph graph)
{
	struct graph_need need;
	if (result == CUDA_SUCCESS && settings_gate() == GATE_LIMITED &&
	    graph_measure(&need, graph) == 0)
		graph_exec_made(*exec, &need, 0);
	return result;
}

CUresult hook_graph_instantiate(original_graph_instantiate original, CUgraphExec *exec,
				CUgraph graph, CUgraphNode *failed, char *log, size_t size)
{
	CUresult r = admit_graph(graph);
	if (r != CUDA_SUCCESS)
		return r;
	return note_instantiated(original(exec, graph, failed, log, size), exec, graph);
}

CUresult hook_graph_instantiate_flags(original_graph_instantiate_flags original, CUgraphExec *exec,
				      CUgraph graph, unsigned long long flags)
{
	CUresult r = admit_graph(graph);
	return r != CUDA_SUCCESS ? r : note_instantiated(original(exec, graph, flags), exec, graph);
}

/* It may upload the graph, too. */
CUresult hook_graph_instantiate_params(original_graph_instantiate_params original,
				       CUgraphExec *exec, CUgraph graph,
				       CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	struct graph_need need;
	struct graph_run run;
	int uploads = params && params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
	CUresult r = admit_graph(graph);
	if (r != CUDA_SUCCESS)
		return r;
	if (!uploads || settings_gate() != GATE_LIMITED || graph_measure(&need, graph))
		return note_instantiated(original(exec, graph, params), exec, graph);
	r = graph_upload_begin(&run, &need);
	if (r != CUDA_SUCCESS)
		return r;
	r = original(exec, graph, params);
	if (r == CUDA_SUCCESS)
		graph_exec_made(*exec, &need, 1);
	return graph_run_end(&run, r);
}

/* Books what a graph may need more when it has been changed to this one. */
static CUresult begin_update(CUgraphExec exec, CUgraph graph)
{
	struct graph_need need;
	CUresult r = admit_graph(graph);
	if (r == CUDA_SUCCESS && settings_gate() == GATE_LIMITED &&
	    graph_measure(&need, graph) == 0)
		graph_exec_update(exec, &need);
	return r;
}

CUresult hook_graph_exec_update(original_graph_exec_update original, CUgraphExec exec,
				CUgraph graph, CUgraphNode *failed, int *why)
{
	CUresult r = begin_update(exec, graph);
	return r == CUDA_SUCCESS ? original(exec, graph, failed, why) : r;
}

CUresult hook_graph_exec_update_v2(original_graph_exec_update_v2 original, CUgraphExec exec,
				   CUgraph graph, CUgraphExecUpdateResultInfo *why)
{
	CUresult r = begin_update(exec, graph);
	return r == CUDA_SUCCESS ? original(exec, graph, why) : r;
}

CUresult hook_graph_upload(original_graph_upload original, CUgraphExec exec, CUstream stream)
{
	struct graph_run run;
	CUresult r = graph_run_begin(&run, exec, NULL);
	return r == CUDA_SUCCESS ? graph_run_end(&run, original(exec, stream)) : r;
}

CUresult hook_graph_mem_trim(original_graph_mem_trim original, CUdevice device)
{
	return graph_trim(original, device);
}

CUresult hook_graph_exec_destroy(original_graph_exec_destroy original, CUgraphExec exec)
{
	if (settings_gate() != GATE_LIMITED)
		return original(exec);
	struct graph_exec *e = graph_exec_take(exec);
	CUresult r = original(exec);
	graph_exec_settle(e, r);
	for (int i = 0; r == CUDA_SUCCESS && i < HAMI_DEVICES; i++)
		graphs_refresh(i);
	return r;
}
