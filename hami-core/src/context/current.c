/* SPDX-License-Identifier: Apache-2.0 */
#include "context/current.h"

#include "context/green.h"
#include "driver/resolve.h"

CUcontext current_context(void)
{
	CUcontext context = NULL;
	fn_cuCtxGetCurrent get = ORIGINAL(cuCtxGetCurrent);
	return get && get(&context) == CUDA_SUCCESS ? green_owner(context) : NULL;
}

CUcontext current_stream_context(CUstream stream)
{
	CUcontext context = NULL;
	fn_cuStreamGetCtx get = stream_is_made(stream) ? ORIGINAL(cuStreamGetCtx) : NULL;
	if (get && get(stream, &context) == CUDA_SUCCESS && context)
		return green_owner(context);
	return current_context();
}

int current_push(CUcontext context)
{
	fn_cuCtxPushCurrent_v2 push = ORIGINAL(cuCtxPushCurrent_v2);
	return context && push && current_context() != context && push(context) == CUDA_SUCCESS;
}

void current_pop(int entered)
{
	CUcontext context;
	fn_cuCtxPopCurrent_v2 pop = ORIGINAL(cuCtxPopCurrent_v2);
	if (entered && pop)
		pop(&context);
}
