/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_work.c: streams, modules and kernels. A kernel named `work_<n>us` keeps its
 * device busy for n microseconds: the device has one timeline shared by all
 * processes, in the order of launches, and synchronising sleeps until it is reached.
 */
#include "cuda_exports.h"
#include "cuda_fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct CUmod_st {
	struct CUfunc_st *functions;
};
struct CUfunc_st {
	uint64_t duration_ns;
	struct CUfunc_st *next;
};

/* The stream behind a handle: NULL, 1 (legacy) and 2 (per thread) are the default stream here. */
static struct CUstream_st *resolve(CUstream stream)
{
	if (stream > (CUstream)2)
		return stream;
	int ordinal = fg_current();
	return ordinal < 0 ? NULL : &fake.stream0[ordinal];
}

static void sleep_until(uint64_t ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000ULL), .tv_nsec = (long)(ns % 1000000000ULL)};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
		;
}

static uint64_t max_u64(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	struct CUctx_st *context = fg_context();
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!stream || flags > 1)
		return CUDA_ERROR_INVALID_VALUE;
	*stream = calloc(1, sizeof **stream);
	(*stream)->ordinal = context->ordinal;
	(*stream)->context = context;
	return CUDA_SUCCESS;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (stream <= (CUstream)2)
		return CUDA_ERROR_INVALID_HANDLE;
	free(stream);
	return CUDA_SUCCESS;
}

CUresult cuStreamDestroy(CUstream stream)
{
	return cuStreamDestroy_v2(stream);
}

CUresult cuStreamQuery(CUstream stream)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	struct CUstream_st *s = resolve(stream);
	if (!s)
		return CUDA_ERROR_INVALID_CONTEXT;
	return fg_now_ns() < __atomic_load_n(&s->tail_ns, __ATOMIC_RELAXED) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

CUresult cuStreamQuery_ptsz(CUstream stream)
{
	return cuStreamQuery(stream);
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!context)
		return CUDA_ERROR_INVALID_VALUE;
	*context = stream > (CUstream)2 ? stream->context : fg_context();
	return *context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuStreamGetCtx_ptsz(CUstream stream, CUcontext *context)
{
	return cuStreamGetCtx(stream, context);
}

/* Recording into graphs is not known here: no stream ever is. */
CUresult cuStreamIsCapturing(CUstream stream, int *status)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!status || !resolve(stream))
		return CUDA_ERROR_INVALID_VALUE;
	*status = 0;
	return CUDA_SUCCESS;
}

CUresult cuStreamIsCapturing_ptsz(CUstream stream, int *status)
{
	return cuStreamIsCapturing(stream, status);
}

CUresult cuStreamSynchronize(CUstream stream)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	struct CUstream_st *s = resolve(stream);
	if (!s)
		return CUDA_ERROR_INVALID_CONTEXT;
	sleep_until(__atomic_load_n(&s->tail_ns, __ATOMIC_RELAXED));
	fg_drain_pools(s->ordinal);
	return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
	return cuStreamSynchronize(stream);
}

/* Work of one device is one timeline, so its end is the end of everything of ours, or a bit later. */
void fg_drain(int ordinal)
{
	fg_lock();
	uint64_t end = fg_state()->device[fake.gpu[ordinal]->minor].busy_until_ns;
	fg_unlock();
	sleep_until(end);
	fg_drain_pools(ordinal);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (fg_current() < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!module || !image)
		return CUDA_ERROR_INVALID_VALUE;
	*module = calloc(1, sizeof **module);
	return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module)
{
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	while (module->functions) {
		struct CUfunc_st *f = module->functions;
		module->functions = f->next;
		free(f);
	}
	free(module);
	return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
	unsigned long us;
	char tail[3] = "";
	if (!function || !module || !name)
		return CUDA_ERROR_INVALID_VALUE;
	if (sscanf(name, "work_%lu%2s", &us, tail) != 2 || tail[0] != 'u' || tail[1] != 's')
		return CUDA_ERROR_NOT_FOUND;
	struct CUfunc_st *f = calloc(1, sizeof *f);
	*f = (struct CUfunc_st){.duration_ns = us * 1000, .next = module->functions};
	module->functions = f;
	*function = f;
	return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
			unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params,
			void **extra)
{
	(void)shared, (void)params, (void)extra;
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	struct CUstream_st *s = resolve(stream);
	if (!s)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!function || !gx || !gy || !gz || !bx || !by || !bz || (uint64_t)bx * by * bz > 1024)
		return CUDA_ERROR_INVALID_VALUE;
	int minor = fake.gpu[s->ordinal]->minor;
	fg_lock();
	struct fg_device_state *d = &fg_state()->device[minor];
	int lost = d->lost != 0;
	if (!lost) {
		uint64_t start = max_u64(max_u64(fg_now_ns(), d->busy_until_ns), s->tail_ns);
		d->busy_until_ns = start + function->duration_ns;
		d->busy_total_ns += function->duration_ns;
		fg_state()->process[fake.slot].busy_ns[minor] += function->duration_ns;
		__atomic_store_n(&s->tail_ns, d->busy_until_ns, __ATOMIC_RELAXED);
	}
	fg_unlock();
	return lost ? CUDA_ERROR_UNKNOWN : CUDA_SUCCESS;
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
			     unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params,
			     void **extra)
{
	return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}
