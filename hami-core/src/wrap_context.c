/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_context.c: a context costs memory (see overhead.h) and, when it goes, takes its plain
 * memory, its arrays and its code along; pools and physical handles belong to the device and stay.
 */
#include "account.h"
#include "limiter.h"
#include "overhead.h"
#include "resolve.h"

#define ORDINALS 64 /* devices whose primary context is remembered */

static CUcontext primary[ORDINALS]; /* by CUDA ordinal, since its first retain */

static CUcontext primary_of(CUdevice device)
{
	return device >= 0 && device < ORDINALS ? __atomic_load_n(&primary[device], __ATOMIC_ACQUIRE) : NULL;
}

/* Whether a device's primary context exists; 1 when the driver does not say. */
static int primary_active(CUdevice device)
{
	unsigned int flags;
	int active = 1;
	fn_cuDevicePrimaryCtxGetState state = ORIGINAL(cuDevicePrimaryCtxGetState);
	return !state || state(device, &flags, &active) != CUDA_SUCCESS || active;
}

CUresult hook_primary_retain(original_primary_retain original, CUcontext *context, CUdevice device)
{
	struct context_making m = {.device = -1};
	if (!primary_active(device))
		overhead_context_begin(&m, device);
	CUresult r = original(context, device);
	if (r == CUDA_SUCCESS && device >= 0 && device < ORDINALS)
		__atomic_store_n(&primary[device], *context, __ATOMIC_RELEASE);
	return overhead_context_end(&m, r, r == CUDA_SUCCESS ? *context : NULL);
}

/* The shape of all the ways to make a context. */
#define CREATE(call)                         \
	struct context_making m;             \
	overhead_context_begin(&m, device);  \
	CUresult r = call;                   \
	return overhead_context_end(&m, r, r == CUDA_SUCCESS && context ? *context : NULL)

CUresult hook_ctx_create(original_ctx_create original, CUcontext *context, unsigned int flags, CUdevice device)
{
	CREATE(original(context, flags, device));
}

CUresult hook_ctx_create_v3(original_ctx_create_v3 original, CUcontext *context, void *affinity, int count,
			    unsigned int flags, CUdevice device)
{
	CREATE(original(context, affinity, count, flags, device));
}

CUresult hook_ctx_create_v4(original_ctx_create_v4 original, CUcontext *context, void *params, unsigned int flags, CUdevice device)
{
	CREATE(original(context, params, flags, device));
}

/* Whether it was the last reference shows only afterwards. */
CUresult hook_primary_release(original_primary_release original, CUdevice device)
{
	struct departing d;
	CUcontext context = primary_of(device);
	limiter_settle(context);
	CUresult r = original(device);
	if (r != CUDA_SUCCESS || primary_active(device))
		return r;
	limiter_forget(context);
	context_leave_begin(&d, context);
	return context_leave_end(&d, r);
}

/* The shape of what takes a context away for certain. */
#define TAKE_AWAY(context, call)                \
	struct departing d;                     \
	struct span_rest rest;                  \
	limiter_settle(context);                \
	limiter_leave_begin(&rest, context);    \
	context_leave_begin(&d, context);       \
	CUresult r = call;                      \
	limiter_leave_end(&rest);               \
	return context_leave_end(&d, r)

CUresult hook_primary_reset(original_primary_reset original, CUdevice device)
{
	CUcontext context = primary_of(device);
	TAKE_AWAY(context, original(device));
}

CUresult hook_ctx_destroy(original_ctx_destroy original, CUcontext context)
{
	TAKE_AWAY(context, original(context));
}
