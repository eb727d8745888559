/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_wait.c: a program that has waited for its work pays for it there and then: it may end without a further launch, and its
 * context with it.
 */
#include "account.h"
#include "limiter.h"
#include "resolve.h"

/* The context is asked for before: the stream may be gone when the waiting is over. */
#define WAIT(stream, call)                              \
	do {                                            \
		CUcontext where = limiter_waits(stream); \
		CUresult r = call;                      \
		if (r == CUDA_SUCCESS)                  \
			limiter_settle(where);          \
		return r;                               \
	} while (0)

CUresult hook_ctx_synchronize(original_ctx_synchronize original)
{
	WAIT(NULL, original());
}

/* Waits for the context that it names; NULL: for the current one. */
CUresult hook_ctx_synchronize_v2(original_ctx_synchronize_v2 original, CUcontext context)
{
	if (!context)
		WAIT(NULL, original(context));
	CUcontext where = context_owner(context);
	CUresult r = original(context);
	if (r == CUDA_SUCCESS)
		limiter_settle(where);
	return r;
}

CUresult hook_stream_synchronize(original_stream_synchronize original, CUstream stream)
{
	WAIT(stream, original(stream));
}

/* In either twin a default stream belongs to the current context. */
CUresult hook_stream_synchronize_ptsz(original_stream_synchronize_ptsz original, CUstream stream)
{
	WAIT(stream, original(stream));
}

CUresult hook_event_synchronize(original_event_synchronize original, CUevent event)
{
	WAIT(NULL, original(event));
}
