/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_work_graph.c: events and captures. An event is a mark in the device's order of work. As in
 * the real driver, recording an event into a captured stream makes it part of the graph, so its
 * time cannot be asked for; and asking for an event while any stream is captured spoils the
 * capture, unless the thread has relaxed its capture mode.
 */
#include "cuda_exports.h"
#include "cuda_graph.h"
#include "cuda_work.h"

#include <stdlib.h>

#include "cuda_timeline.h"

struct CUevent_st {
	uint64_t ticket; /* 0: not recorded */
	uint64_t recorded_ns;
	int minor, captured, timed;
	struct CUctx_st *context; /* the one that was current when it was made */
};
static struct CUgraph_st *capturing; /* the capture under way: one at a time here */
static _Thread_local int mode;       /* 0 global, 1 thread-local, 2 relaxed */
static _Thread_local struct CUgraph_st *mine; /* what this thread's default stream records into */

/* What a stream records into; NULL for the legacy stream, which cannot record. */
static struct CUgraph_st **recording_of(CUstream stream)
{
	return stream == CU_STREAM_PER_THREAD ? &mine : stream > CU_STREAM_PER_THREAD ? &stream->recording : NULL;
}

int fg_capture(CUstream stream, uint64_t ns)
{
	if (!fg_recorded(stream))
		return 0;
	pthread_mutex_lock(&fake.mutex);
	struct CUgraph_st *g = fg_recorded(stream); /* another thread may have ended the capture */
	if (g)
		fg_graph_add_kernel(g, ns);
	pthread_mutex_unlock(&fake.mutex);
	return g != NULL;
}

struct CUgraph_st *fg_recorded(CUstream stream)
{
	struct CUgraph_st **at = recording_of(stream);
	return at ? __atomic_load_n(at, __ATOMIC_RELAXED) : NULL;
}

int fg_spoils(void)
{
	struct CUgraph_st *g = __atomic_load_n(&capturing, __ATOMIC_ACQUIRE);
	if (!g || mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return 0;
	return g->spoiled = 1;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!event || fg_current() < 0)
		return event ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
	*event = calloc(1, sizeof **event);
	(*event)->timed = !(flags & CU_EVENT_DISABLE_TIMING);
	(*event)->context = fg_context();
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
	free(event);
	return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	struct CUstream_st *s = fg_stream(stream);
	if (!event || !s)
		return event ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_HANDLE;
	if (event->context != (stream > (CUstream)2 ? stream->context : fg_context()))
		return CUDA_ERROR_INVALID_HANDLE; /* event and stream must be of one context */
	event->captured = fg_capture(stream, 0);
	if (!event->captured) {
		event->ticket = fg_enqueue(s, 0);
		event->minor = fg_minor(s);
		event->recorded_ns = fg_clock_now();
	}
	return event->captured || event->ticket ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult cuEventRecord_ptsz(CUevent event, CUstream stream)
{
	return cuEventRecord(event, stream);
}

CUresult cuEventQuery(CUevent event)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!event)
		return CUDA_ERROR_INVALID_HANDLE;
	if (fg_spoils() || event->captured)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	fg_clock_spend(FG_QUERY_NS);
	return fg_timeline_passed(event->minor, event->ticket) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event)
{
	CUresult r = cuEventQuery(event);
	if (r == CUDA_ERROR_NOT_READY)
		fg_timeline_wait(event->minor, event->ticket);
	return r == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : r;
}

static int64_t time_of(const struct CUevent_st *e)
{
	return (int64_t)fg_timeline_when(e->minor, e->ticket, e->recorded_ns);
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end)
{
	if (!milliseconds || !start || !end)
		return CUDA_ERROR_INVALID_VALUE;
	if (!start->ticket || !end->ticket || !start->timed || !end->timed)
		return CUDA_ERROR_INVALID_HANDLE;
	CUresult r = cuEventQuery(start);
	if (r == CUDA_SUCCESS)
		r = cuEventQuery(end);
	if (r == CUDA_SUCCESS)
		*milliseconds = (float)((double)(time_of(end) - time_of(start)) / 1e6);
	return r;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
	return cuEventElapsedTime(milliseconds, start, end);
}

CUresult cuThreadExchangeStreamCaptureMode(int *wanted)
{
	if (!wanted || *wanted < 0 || *wanted > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	int before = mode;
	mode = *wanted;
	*wanted = before;
	return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!status || !fg_stream(stream))
		return CUDA_ERROR_INVALID_VALUE;
	*status = fg_recorded(stream) != NULL;
	return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing_ptsz(CUstream stream, int *status)
{
	return cuStreamIsCapturing(stream, status);
}

CUresult cuStreamBeginCapture_v2(CUstream stream, int wanted)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	struct CUgraph_st **at = recording_of(stream);
	if (!at || wanted < 0 || wanted > 2)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	pthread_mutex_lock(&fake.mutex);
	int begins = !*at && !capturing;
	if (begins)
		__atomic_store_n(at, fg_graph_new(), __ATOMIC_RELAXED);
	if (begins && wanted == 0)
		__atomic_store_n(&capturing, *at, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&fake.mutex);
	return begins ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
	struct CUgraph_st **at = recording_of(stream);
	if (!at || !graph)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.mutex);
	struct CUgraph_st *g = *at;
	if (g)
		__atomic_store_n(&capturing, NULL, __ATOMIC_RELEASE);
	__atomic_store_n(at, NULL, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&fake.mutex);
	if (!g)
		return CUDA_ERROR_INVALID_VALUE;
	*graph = g->spoiled ? NULL : g;
	return g->spoiled ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}
