/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_context.c: a context that goes takes its plain memory and its arrays along; pools
 * and physical handles belong to the device and stay. What a context itself costs is not
 * charged yet.
 */
#include "account.h"
#include "limiter.h"
#include "resolve.h"

#define ORDINALS 64 /* devices whose primary context is remembered */

static CUcontext primary[ORDINALS]; /* by CUDA ordinal, since its first retain */

static CUcontext primary_of(CUdevice device)
{
	return device >= 0 && device < ORDINALS ? __atomic_load_n(&primary[device], __ATOMIC_ACQUIRE) : NULL;
}

CUresult hook_primary_retain(original_primary_retain original, CUcontext *context, CUdevice device)
{
	CUresult r = original(context, device);
	if (r == CUDA_SUCCESS && device >= 0 && device < ORDINALS)
		__atomic_store_n(&primary[device], *context, __ATOMIC_RELEASE);
	return r;
}

/* Whether it was the last reference shows only afterwards. */
CUresult hook_primary_release(original_primary_release original, CUdevice device)
{
	struct departing d;
	unsigned int flags;
	int active = 1;
	CUcontext context = primary_of(device);
	fn_cuDevicePrimaryCtxGetState state = ORIGINAL(cuDevicePrimaryCtxGetState);
	CUresult r = original(device);
	if (r != CUDA_SUCCESS || !state || state(device, &flags, &active) != CUDA_SUCCESS || active)
		return r;
	limiter_forget(context);
	context_leave_begin(&d, context);
	return context_leave_end(&d, r);
}

CUresult hook_primary_reset(original_primary_reset original, CUdevice device)
{
	struct departing d;
	limiter_forget(primary_of(device));
	context_leave_begin(&d, primary_of(device));
	return context_leave_end(&d, original(device));
}

CUresult hook_ctx_destroy(original_ctx_destroy original, CUcontext context)
{
	struct departing d;
	limiter_forget(context);
	context_leave_begin(&d, context);
	return context_leave_end(&d, original(context));
}
