/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_context.c: primary and created contexts, and each thread's stack of them.
 * What one costs is said in cuda_overhead.c. When it goes, it takes along what was allocated in it.
 * A green context is a view of the primary one, which it keeps alive: it costs nothing and owns nothing.
 */
#include "cuda_exports.h"
#include "cuda_fake.h"

#include <stdlib.h>

#define DEPTH 16
static _Thread_local struct CUctx_st *stack[DEPTH];
static _Thread_local int top; /* stack[top - 1] is current */

static struct CUctx_st *created; /* under fake.mutex */
static struct CUctx_st *greens;  /* the same; a destroyed one stays as memory, so that no address is used twice */

/* Held while a primary context is made or ends: nobody is given one that is about to lose its memory. */
static pthread_mutex_t lifetimes = PTHREAD_MUTEX_INITIALIZER; /* before fake.mutex */

int fg_context_lives(const struct CUctx_st *c)
{
	for (int i = 0; i < fake.count; i++)
		if (c == &fake.primary[i])
			return c->references > 0;
	const struct CUctx_st *k = created;
	while (k && k != c)
		k = k->next;
	for (const struct CUctx_st *g = greens; g && !k; g = g->next)
		k = g == c ? g : NULL;
	return k != NULL;
}

struct CUctx_st *fg_context(void)
{
	if (!top || !stack[top - 1])
		return NULL;
	pthread_mutex_lock(&fake.mutex);
	struct CUctx_st *c = fg_context_lives(stack[top - 1]) ? stack[top - 1] : NULL;
	pthread_mutex_unlock(&fake.mutex);
	return c && c->owner ? c->owner : c;
}

int fg_current(void)
{
	struct CUctx_st *c = fg_context();
	return c ? c->ordinal : -1;
}

static void drop_resources(struct CUctx_st *context)
{
	fg_context_close(context);
	fg_memory_reset(context);
	fg_arrays_reset(context);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!fg_gpu(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lifetimes);
	pthread_mutex_lock(&fake.mutex);
	struct CUctx_st *c = &fake.primary[device];
	CUresult r = c->references ? CUDA_SUCCESS : fg_context_open(c);
	c->references += r == CUDA_SUCCESS;
	pthread_mutex_unlock(&fake.mutex);
	pthread_mutex_unlock(&lifetimes);
	if (r == CUDA_SUCCESS)
		*context = c;
	return r;
}

static CUresult drop_primary(CUdevice device, int all)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!fg_gpu(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&lifetimes);
	pthread_mutex_lock(&fake.mutex);
	struct CUctx_st *c = &fake.primary[device];
	CUresult r = c->references || all ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
	if (c->references)
		c->references = all ? 0 : c->references - 1;
	int last = r == CUDA_SUCCESS && !c->references;
	pthread_mutex_unlock(&fake.mutex);
	if (last)
		drop_resources(c);
	pthread_mutex_unlock(&lifetimes);
	return r;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice device) { return drop_primary(device, 0); }
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) { return drop_primary(device, 0); }
CUresult cuDevicePrimaryCtxReset(CUdevice device) { return drop_primary(device, 1); }
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) { return drop_primary(device, 1); }

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!fg_gpu(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = 0;
	*active = fake.primary[device].references > 0;
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (top == DEPTH)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack[top++] = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
	if (!top)
		return CUDA_ERROR_INVALID_CONTEXT;
	top--;
	if (context)
		*context = stack[top];
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!top)
		top = 1;
	stack[top - 1] = context;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	*context = top ? stack[top - 1] : NULL;
	return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	(void)flags;
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!fg_gpu(device))
		return CUDA_ERROR_INVALID_DEVICE;
	struct CUctx_st *c = context ? calloc(1, sizeof *c) : NULL;
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	c->ordinal = device;
	c->references = 1;
	pthread_mutex_lock(&fake.mutex);
	CUresult r = fg_context_open(c);
	if (r == CUDA_SUCCESS) {
		c->next = created;
		created = c;
	}
	pthread_mutex_unlock(&fake.mutex);
	if (r != CUDA_SUCCESS)
		return free(c), r;
	*context = c;
	return cuCtxPushCurrent_v2(c);
}

CUresult cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
	return cuCtxCreate_v2(context, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	pthread_mutex_lock(&fake.mutex);
	struct CUctx_st **at = &created;
	while (*at && *at != context)
		at = &(*at)->next;
	int found = *at != NULL;
	if (found)
		*at = context->next;
	pthread_mutex_unlock(&fake.mutex);
	if (!found)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (top && stack[top - 1] == context)
		top--;
	drop_resources(context);
	free(context);
	return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext context)
{
	return cuCtxDestroy_v2(context);
}

CUresult cuCtxAttach(CUcontext *context, unsigned int flags)
{
	struct CUctx_st *c = fg_context();
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!context || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (!c || c->primary || c != stack[top - 1])
		return CUDA_ERROR_INVALID_CONTEXT;
	c->references++;
	*context = c;
	return CUDA_SUCCESS;
}

CUresult cuCtxDetach(CUcontext context)
{
	struct CUctx_st *c = fg_context();
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!c || c != context || c->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	return --c->references ? CUDA_SUCCESS : cuCtxDestroy_v2(context);
}

/* The parts of a device are not modelled: any description will do. */
CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc parts, CUdevice device, unsigned int flags)
{
	CUcontext owner;
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!green || !parts || flags != CU_GREEN_CTX_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = cuDevicePrimaryCtxRetain(&owner, device);
	if (r != CUDA_SUCCESS)
		return r;
	struct CUctx_st *c = calloc(1, sizeof *c);
	*c = (struct CUctx_st){.ordinal = device, .owner = owner};
	pthread_mutex_lock(&fake.mutex);
	c->next = greens;
	greens = c;
	pthread_mutex_unlock(&fake.mutex);
	*green = (CUgreenCtx)c;
	return CUDA_SUCCESS;
}

CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!context || !green)
		return CUDA_ERROR_INVALID_VALUE;
	*context = (CUcontext)green;
	return CUDA_SUCCESS;
}

CUresult cuGreenCtxDestroy(CUgreenCtx green)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	pthread_mutex_lock(&fake.mutex);
	struct CUctx_st **at = &greens;
	while (*at && *at != (CUcontext)green)
		at = &(*at)->next;
	struct CUctx_st *c = *at;
	if (c)
		*at = c->next;
	pthread_mutex_unlock(&fake.mutex);
	return c ? drop_primary(c->ordinal, 0) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	int ordinal = fg_current();
	if (ordinal < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	int ordinal = fg_current();
	if (ordinal < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	fg_drain(ordinal);
	return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize_v2(CUcontext context)
{
	if (!context)
		return cuCtxSynchronize();
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	pthread_mutex_lock(&fake.mutex);
	int ordinal = fg_context_lives(context) ? context->ordinal : -1;
	pthread_mutex_unlock(&fake.mutex);
	if (ordinal < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	fg_drain(ordinal);
	return CUDA_SUCCESS;
}
