/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_context.c: a context costs memory (see overhead.h) and, when it goes, takes its plain
 * memory, its arrays and its code along; pools and physical handles belong to the device and stay.
 *
 * A green context is a part of a device's multiprocessors, not a context more: it keeps the primary context alive and
 * uses that one's memory. So what is made in it is the primary context's, and it is charged nothing itself.
 */
#include "account.h"
#include "limiter.h"
#include "overhead.h"
#include "resolve.h"
#include "runtime.h"

#define ORDINALS 64 /* devices whose primary context is remembered */

static CUcontext primary[ORDINALS]; /* by CUDA ordinal, since its first retain */

static unsigned greens; /* contexts of green contexts that are known */

static CUcontext primary_of(CUdevice device)
{
	return device >= 0 && device < ORDINALS ? __atomic_load_n(&primary[device], __ATOMIC_ACQUIRE) : NULL;
}

static void remember_primary(CUdevice device, CUcontext context)
{
	if (device >= 0 && device < ORDINALS)
		__atomic_store_n(&primary[device], context, __ATOMIC_RELEASE);
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
	if (r == CUDA_SUCCESS)
		remember_primary(device, *context);
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

/* A context has gone that might have stayed. */
static void forget(CUcontext context)
{
	struct departing d;
	limiter_forget(context);
	context_leave_begin(&d, context);
	context_leave_end(&d, CUDA_SUCCESS);
}

/* After a reference to a primary context has gone. Whether it was the last shows only now. */
static void settle_primary(CUdevice device, CUcontext context)
{
	if (!primary_active(device))
		forget(context);
}

CUresult hook_primary_release(original_primary_release original, CUdevice device)
{
	CUcontext context = primary_of(device);
	limiter_settle(context);
	CUresult r = original(device);
	if (r == CUDA_SUCCESS)
		settle_primary(device, context);
	return r;
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

/* A primary context, or a green one: each goes by a call of its own. */
static int is_released(CUcontext context)
{
	int found = context_owner(context) != context;
	for (CUdevice i = 0; i < ORDINALS && !found; i++)
		found = context && primary_of(i) == context && primary_active(i); /* one that has gone may have left its address to another */
	return found;
}

/* The driver does not destroy what is to be released: then nothing of it is lost, and what is in flight is still to be measured. */
CUresult hook_ctx_destroy(original_ctx_destroy original, CUcontext context)
{
	if (is_released(context)) {
		CUresult r = original(context);
		if (r == CUDA_SUCCESS)
			forget(context);
		return r;
	}
	TAKE_AWAY(context, original(context));
}

CUresult hook_ctx_attach(original_ctx_attach original, CUcontext *context, unsigned int flags)
{
	struct table_entry e;
	CUresult r = original(context, flags);
	if (r == CUDA_SUCCESS)
		table_use(TABLE_CONTEXT, (uintptr_t)*context, 1, &e);
	return r;
}

/* The last detaching destroys it. The driver refuses a context that is not the current one. */
CUresult hook_ctx_detach(original_ctx_detach original, CUcontext context)
{
	struct table_entry e;
	if (current_context() != context)
		return original(context);
	if (!table_get(TABLE_CONTEXT, (uintptr_t)context, &e) || e.uses < 2)
		return hook_ctx_destroy(original, context);
	CUresult r = original(context);
	if (r == CUDA_SUCCESS)
		table_use(TABLE_CONTEXT, (uintptr_t)context, -1, &e);
	return r;
}

CUcontext context_owner(CUcontext context)
{
	struct table_entry e;
	if (!__atomic_load_n(&greens, __ATOMIC_ACQUIRE) || !table_get(TABLE_GREEN_CONTEXT, (uintptr_t)context, &e))
		return context;
	return (CUcontext)(uintptr_t)e.link;
}

/* A device's primary context, which is active. NULL when the driver does not say. */
static CUcontext ask_primary(CUdevice device)
{
	CUcontext context = NULL;
	fn_cuDevicePrimaryCtxRetain retain = ORIGINAL(cuDevicePrimaryCtxRetain);
	fn_cuDevicePrimaryCtxRelease_v2 release = ORIGINAL(cuDevicePrimaryCtxRelease_v2);
	if (!retain || !release || retain(&context, device) != CUDA_SUCCESS)
		return NULL;
	release(device);
	remember_primary(device, context);
	return context;
}

/* Remembers which context a green one is used by; streams name it also where the program has never asked for it. */
static void know_green(CUgreenCtx green, CUdevice device, CUcontext context)
{
	struct table_entry known, e = {.kind = TABLE_GREEN, .device = device, .key = (uintptr_t)green, .link = (uintptr_t)context};
	struct table_entry used = {.kind = TABLE_GREEN_CONTEXT, .key = (uintptr_t)context, .link = (uintptr_t)primary_of(device)};
	int fresh = context && used.link && !table_get(TABLE_GREEN_CONTEXT, used.key, &known);
	if (!table_add(&e) && fresh && !table_add(&used))
		__atomic_add_fetch(&greens, 1, __ATOMIC_RELEASE);
}

CUresult hook_green_create(original_green_create original, CUgreenCtx *green, CUdevResourceDesc parts, CUdevice device, unsigned int flags)
{
	struct context_making m = {.device = -1};
	CUcontext context = NULL, owner = NULL;
	fn_cuCtxFromGreenCtx context_of = ORIGINAL(cuCtxFromGreenCtx);
	int first = !primary_active(device);
	if (first)
		overhead_context_begin(&m, device);
	CUresult r = original(green, parts, device, flags);
	if (r == CUDA_SUCCESS && runtime_gate() == GATE_LIMITED) {
		owner = ask_primary(device);
		if (!context_of || context_of(&context, *green) != CUDA_SUCCESS)
			context = NULL;
		know_green(*green, device, context);
	}
	return overhead_context_end(&m, r, owner);
}

CUresult hook_ctx_from_green(original_ctx_from_green original, CUcontext *context, CUgreenCtx green)
{
	struct table_entry e;
	CUresult r = original(context, green);
	if (r == CUDA_SUCCESS && table_get(TABLE_GREEN, (uintptr_t)green, &e) && e.link != (uintptr_t)*context)
		know_green(green, e.device, *context);
	return r;
}

CUresult hook_green_destroy(original_green_destroy original, CUgreenCtx green)
{
	struct table_entry e, used;
	if (!table_take(TABLE_GREEN, (uintptr_t)green, &e))
		return original(green);
	int had = e.link && table_take(TABLE_GREEN_CONTEXT, e.link, &used);
	limiter_settle(primary_of(e.device)); /* it may go, too */
	CUresult r = original(green);
	if (r != CUDA_SUCCESS) {
		table_put_back(&e);
		if (had)
			table_put_back(&used);
		return r;
	}
	if (had)
		__atomic_sub_fetch(&greens, 1, __ATOMIC_RELEASE);
	settle_primary(e.device, primary_of(e.device));
	return r;
}
