/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_wait.c: what waits for work. A program pays for it there and then: it may end without a
 * further launch, and its context with it. And pools give back by themselves what they need no
 * longer.
 */
#include "compute/limiter.h"
#include "context/current.h"
#include "context/green.h"
#include "driver/resolve.h"
#include "memory/pools.h"

/* After a wait for work of a context, which is asked for before: its stream may be gone then. */
static CUresult settle_after_wait(CUcontext where, CUresult result)
{
	if (result != CUDA_SUCCESS)
		return result;
	limiter_settle(where);
	pools_synchronised();
	return result;
}

static int context_ended(const void *unused)
{
	(void)unused;
	return 0; /* nobody can ask that without waiting; the work is known to the limiter */
}

static int stream_ended(const void *stream)
{
	fn_cuStreamQuery query = ORIGINAL(cuStreamQuery);
	return !query || query((CUstream)(uintptr_t)stream) != CUDA_ERROR_NOT_READY;
}

static int event_ended(const void *event)
{
	fn_cuEventQuery query = ORIGINAL(cuEventQuery);
	return !query || query((CUevent)(uintptr_t)event) != CUDA_ERROR_NOT_READY;
}

CUresult hook_ctx_synchronize(original_ctx_synchronize original)
{
	CUcontext where = limiter_context_to_settle(NULL);
	limiter_watch_until(where, context_ended, NULL);
	return settle_after_wait(where, original());
}

/* Waits for the context that it names; NULL: for the current one. */
CUresult hook_ctx_synchronize_v2(original_ctx_synchronize_v2 original, CUcontext context)
{
	CUcontext where = context ? green_owner(context) : limiter_context_to_settle(NULL);
	limiter_watch_until(where, context_ended, NULL);
	return settle_after_wait(where, original(context));
}

CUresult hook_stream_synchronize(original_stream_synchronize original, CUstream stream)
{
	CUcontext where = limiter_context_to_settle(stream);
	limiter_watch_until(where, stream_ended, stream);
	return settle_after_wait(where, original(stream));
}

/* In either twin a default stream belongs to the current context. */
CUresult hook_stream_synchronize_ptsz(original_stream_synchronize_ptsz original, CUstream stream)
{
	CUcontext where = limiter_context_to_settle(stream);
	limiter_watch_until(where, stream_ended, stream ? stream : CU_STREAM_PER_THREAD);
	return settle_after_wait(where, original(stream));
}

CUresult hook_event_synchronize(original_event_synchronize original, CUevent event)
{
	limiter_poll(0); /* the event may be of other work: a wait for it says nothing about ours */
	CUcontext where = limiter_context_to_settle(NULL);
	limiter_watch_until(where, event_ended, event);
	return settle_after_wait(where, original(event));
}

static CUresult settle_after_query(CUresult result)
{
	if (result == CUDA_SUCCESS)
		limiter_poll(1);
	return result;
}

CUresult hook_stream_query(original_stream_query original, CUstream stream)
{
	limiter_poll(0);
	return settle_after_query(original(stream));
}

CUresult hook_event_query(original_event_query original, CUevent event)
{
	limiter_poll(0);
	return settle_after_query(original(event));
}
