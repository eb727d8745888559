/* SPDX-License-Identifier: Apache-2.0 */
/* wrap_limit.c: stacks, heap and buffers of the current context, which cuCtxSetLimit sizes. */
#include "driver/resolve.h"
#include "memory/aside.h"
#include "memory/overhead.h"

/* What a limit takes whose size says nothing of memory is measured, like code. */
CUresult hook_ctx_set_limit(original_ctx_set_limit original, int limit, size_t value)
{
	struct aside_change c;
	struct code_loading l;
	overhead_code_begin(&l);
	CUresult r = aside_begin(&c, limit, value);
	if (r != CUDA_SUCCESS)
		return r;
	return overhead_code_end(&l, aside_end(&c, original(limit, value)));
}
