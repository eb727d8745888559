/* SPDX-License-Identifier: Apache-2.0 */
/* wrap_capture.c: the beginning and the end of captures (see capture.h). */
#include "context/capture.h"
#include "driver/resolve.h"

CUresult hook_capture_begin_v1(original_capture_begin_v1 original, CUstream stream)
{
	capture_begin_begin();
	return capture_begin_end(original(stream));
}

CUresult hook_capture_begin(original_capture_begin original, CUstream stream, int mode)
{
	capture_begin_begin();
	return capture_begin_end(original(stream, mode));
}

CUresult hook_capture_begin_to(original_capture_begin_to original, CUstream stream, CUgraph graph,
			       const CUgraphNode *after, const void *edges, size_t count, int mode)
{
	capture_begin_begin();
	return capture_begin_end(original(stream, graph, after, edges, count, mode));
}

CUresult hook_capture_end(original_capture_end original, CUstream stream, CUgraph *graph)
{
	capture_end_begin();
	return capture_end_end(original(stream, graph));
}
