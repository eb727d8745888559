/* SPDX-License-Identifier: Apache-2.0 */
/* wrap_limit.c: stacks, heap and buffers of the current context, which cuCtxSetLimit sizes. */
#include "driver/resolve.h"
#include "memory/context_limits.h"
#include "memory/overhead.h"

/* What a limit takes whose size says nothing of memory is measured, like code. */
CUresult hook_ctx_set_limit(original_ctx_set_limit original, int limit, size_t value)
{
	struct context_limit_change c;
	struct code_load l;
	overhead_code_begin(&l);
	CUresult r = context_limits_begin(&c, limit, value);
	if (r != CUDA_SUCCESS)
		return r;
	return overhead_code_end(&l, context_limits_end(&c, original(limit, value)));
}
