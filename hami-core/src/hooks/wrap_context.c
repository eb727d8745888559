/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_context.c: a context costs memory (overhead.h). When it goes, it takes its plain memory,
 * its arrays and its code along; pools and physical handles belong to the device and stay.
 *
 * A green context is a part of a device's multiprocessors, not one context more: it keeps the
 * primary context alive and uses that one's memory. What is made in it is charged as the primary
 * context's, and the green one itself is charged nothing.
 */
#include "compute/limiter.h"
#include "context/current.h"
#include "context/green.h"
#include "context/primary.h"
#include "driver/resolve.h"
#include "memory/account.h"
#include "memory/release.h"
#include "memory/overhead.h"
#include "settings/settings.h"

/* The context that a successful call wrote to `out`, which callers may leave NULL. */
static CUcontext made_context(CUresult result, const CUcontext *out)
{
	return result == CUDA_SUCCESS && out ? *out : NULL;
}

CUresult hook_primary_retain(original_primary_retain original, CUcontext *context, CUdevice device)
{
	struct context_creation m = {.device = -1};
	int is_new = !primary_is_active(device);
	if (is_new)
		overhead_add_context_begin(&m, device);
	CUresult r = original(context, device);
	if (made_context(r, context)) {
		primary_remember(device, *context);
		primary_add_references(device, 1);
		if (is_new)
			primary_bump_generation(device);
	}
	return overhead_add_context_end(&m, r, made_context(r, context));
}

CUresult hook_ctx_create(original_ctx_create original, CUcontext *context, unsigned int flags,
			 CUdevice device)
{
	struct context_creation m;
	overhead_add_context_begin(&m, device);
	CUresult r = original(context, flags, device);
	return overhead_add_context_end(&m, r, made_context(r, context));
}

CUresult hook_ctx_create_v3(original_ctx_create_v3 original, CUcontext *context, void *affinity,
			    int count, unsigned int flags, CUdevice device)
{
	struct context_creation m;
	overhead_add_context_begin(&m, device);
	CUresult r = original(context, affinity, count, flags, device);
	return overhead_add_context_end(&m, r, made_context(r, context));
}

CUresult hook_ctx_create_v4(original_ctx_create_v4 original, CUcontext *context, void *params,
			    unsigned int flags, CUdevice device)
{
	struct context_creation m;
	overhead_add_context_begin(&m, device);
	CUresult r = original(context, params, flags, device);
	return overhead_add_context_end(&m, r, made_context(r, context));
}

/* Settles a context that has gone, when that was not known before the call. */
static void settle_gone_context(CUcontext context)
{
	struct context_release d;
	limiter_remove_context(context);
	release_context_begin(&d, context);
	release_context_end(&d, CUDA_SUCCESS);
}

/* After a reference to a primary context has gone: only now it shows whether it was the last. */
static void settle_if_inactive(CUdevice device, CUcontext context)
{
	if (!primary_is_active(device))
		settle_gone_context(context);
}

/* Around a call that takes a context away: its memory and the work in flight. */
struct context_teardown {
	struct context_release memory;
	struct unmeasured_work work;
};

static void teardown_begin(struct context_teardown *t, CUcontext context)
{
	limiter_settle(context);
	limiter_remove_context_begin(&t->work, context);
	release_context_begin(&t->memory, context);
}

static CUresult teardown_end(struct context_teardown *t, CUresult result)
{
	limiter_remove_context_end(&t->work);
	return release_context_end(&t->memory, result);
}

/*
 * Releases the last reference that this process has taken. Another thread may take one meanwhile.
 */
static CUresult release_last(original_primary_release original, CUdevice device)
{
	struct context_teardown t;
	unsigned before = primary_generation(device);
	teardown_begin(&t, primary_of(device));
	CUresult r = original(device);
	int stays = r == CUDA_SUCCESS && primary_generation(device) == before &&
		    primary_is_active(device);
	if (r == CUDA_SUCCESS)
		primary_add_references(device, -1);
	teardown_end(&t, stays ? CUDA_ERROR_UNKNOWN : r);
	return r;
}

CUresult hook_primary_release(original_primary_release original, CUdevice device)
{
	if (primary_add_references(device, 0) == 1)
		return release_last(original, device);
	CUcontext context = primary_of(device);
	limiter_settle(context);
	CUresult r = original(device);
	if (r == CUDA_SUCCESS) {
		primary_add_references(device, -1);
		settle_if_inactive(device, context);
	}
	return r;
}

CUresult hook_primary_reset(original_primary_reset original, CUdevice device)
{
	struct context_teardown t;
	teardown_begin(&t, primary_of(device));
	CUresult r = teardown_end(&t, original(device));
	if (r == CUDA_SUCCESS) /* another thread may have met the context while it went */
		settle_if_inactive(device, primary_of(device));
	return r;
}

/*
 * A primary or a green context: the driver releases each by a call of its own and does not destroy
 * it.
 */
static int is_released(CUcontext context)
{
	return green_owner(context) != context || primary_includes(context);
}

/*
 * Where the driver refuses to destroy a context, nothing of it is lost and its work is still
 * measured.
 */
CUresult hook_ctx_destroy(original_ctx_destroy original, CUcontext context)
{
	if (is_released(context)) {
		CUresult r = original(context);
		if (r == CUDA_SUCCESS)
			settle_gone_context(context);
		return r;
	}
	struct context_teardown t;
	teardown_begin(&t, context);
	return teardown_end(&t, original(context));
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

/* The context that a green one is used by, as the driver tells; NULL when it does not. */
static CUcontext context_of(CUgreenCtx green)
{
	CUcontext context = NULL;
	fn_cuCtxFromGreenCtx ask = ORIGINAL(cuCtxFromGreenCtx);
	return ask && ask(&context, green) == CUDA_SUCCESS ? context : NULL;
}

CUresult hook_green_create(original_green_create original, CUgreenCtx *green,
			   CUdevResourceDesc parts, CUdevice device, unsigned int flags)
{
	struct context_creation m = {.device = -1};
	CUcontext owner = NULL;
	if (!primary_is_active(device))
		overhead_add_context_begin(&m, device);
	CUresult r = original(green, parts, device, flags);
	if (r == CUDA_SUCCESS && settings_gate() == GATE_LIMITED) {
		owner = primary_query(device); /* first: streams name it, and learning needs it */
		green_learn(*green, device, context_of(*green));
	}
	return overhead_add_context_end(&m, r, owner);
}

CUresult hook_ctx_from_green(original_ctx_from_green original, CUcontext *context, CUgreenCtx green)
{
	CUdevice device;
	CUcontext known;
	CUresult r = original(context, green);
	if (r == CUDA_SUCCESS && green_find(green, &device, &known) && known != *context)
		green_learn(green, device, *context);
	return r;
}

CUresult hook_green_destroy(original_green_destroy original, CUgreenCtx green)
{
	struct green_destruction l;
	green_destroy_begin(&l, green);
	if (!l.found)
		return original(green);
	CUdevice device = l.green.device;
	limiter_settle(primary_of(device)); /* it may go, too */
	CUresult r = original(green);
	green_destroy_end(&l, r);
	if (r == CUDA_SUCCESS)
		settle_if_inactive(device, primary_of(device));
	return r;
}
