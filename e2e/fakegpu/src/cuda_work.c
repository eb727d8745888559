/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_work.c: streams, modules and kernels. A kernel named `work_<n>us` keeps its
 * device busy for n microseconds: the device has one timeline shared by all
 * processes, in the order of launches, and synchronising sleeps until it is reached.
 */
#include "cuda_exports.h"
#include "cuda_work.h"

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

struct CUstream_st *fg_stream(CUstream stream)
{
	if (stream > (CUstream)2)
		return stream;
	int ordinal = fg_current();
	return ordinal < 0 ? NULL : &fake.stream0[ordinal];
}

void fg_sleep_until(uint64_t ns)
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
	struct CUstream_st *s = fg_stream(stream);
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

CUresult cuStreamSynchronize(CUstream stream)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	struct CUstream_st *s = fg_stream(stream);
	if (!s)
		return CUDA_ERROR_INVALID_CONTEXT;
	fg_sleep_until(__atomic_load_n(&s->tail_ns, __ATOMIC_RELAXED));
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
	fg_sleep_until(end);
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

/* Waits for a place in the stream's queue: the work FG_QUEUE_DEPTH launches ago must have ended. */
static void wait_for_place(struct CUstream_st *s)
{
	uint64_t oldest = __atomic_load_n(&s->ends[s->launches % FG_QUEUE_DEPTH], __ATOMIC_RELAXED);
	if (oldest > fg_now_ns())
		fg_sleep_until(oldest);
}

uint64_t fg_enqueue(struct CUstream_st *s, uint64_t ns)
{
	int minor = fake.gpu[s->ordinal]->minor;
	if (ns)
		wait_for_place(s);
	fg_lock();
	struct fg_device_state *d = &fg_state()->device[minor];
	uint64_t end = 0;
	if (!d->lost) {
		end = max_u64(max_u64(fg_now_ns(), d->busy_until_ns), s->tail_ns) + ns;
		d->busy_until_ns = ns ? end : d->busy_until_ns;
		d->busy_total_ns += ns;
		fg_state()->process[fake.slot].busy_ns[minor] += ns;
		__atomic_store_n(&s->tail_ns, end, __ATOMIC_RELAXED);
		if (ns)
			__atomic_store_n(&s->ends[s->launches++ % FG_QUEUE_DEPTH], end, __ATOMIC_RELAXED);
	}
	fg_unlock();
	return end;
}

static CUresult launch(CUfunction function, CUstream stream)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	struct CUstream_st *s = fg_stream(stream);
	if (!s)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	if (fg_capture(stream, function->duration_ns))
		return CUDA_SUCCESS;
	return fg_enqueue(s, function->duration_ns) ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
			unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params,
			void **extra)
{
	(void)shared, (void)params, (void)extra;
	if (fg_ready() == CUDA_SUCCESS && fg_stream(stream) &&
	    (!function || !gx || !gy || !gz || !bx || !by || !bz || (uint64_t)bx * by * bz > 1024))
		return CUDA_ERROR_INVALID_VALUE;
	return launch(function, stream);
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
			     unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params,
			     void **extra)
{
	return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
				   unsigned int by, unsigned int bz, unsigned int shared, CUstream stream, void **params)
{
	return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, params, NULL);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
					unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
					CUstream stream, void **params)
{
	return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, params, NULL);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction function, void **params, void **extra)
{
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	return cuLaunchKernel(function, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
			      c->sharedMemBytes, c->hStream, params, extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *c, CUfunction function, void **params, void **extra)
{
	return cuLaunchKernelEx(c, function, params, extra);
}

CUresult cuLaunch(CUfunction function)
{
	return launch(function, NULL);
}

CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
	return width > 0 && height > 0 ? launch(function, NULL) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
	return width > 0 && height > 0 ? launch(function, stream) : CUDA_ERROR_INVALID_VALUE;
}
