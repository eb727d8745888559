/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_work.c: streams, modules and kernels. A kernel named `work_<n>us` keeps its
 * device busy for n microseconds (cuda_timeline.h), one named `work_us` for as many as its first
 * parameter says, and synchronising sleeps until it has ended.
 */
#include "cuda_exports.h"
#include "cuda_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_timeline.h"

struct CUmod_st {
	struct CUfunc_st *functions;
};
struct CUfunc_st {
	uint64_t duration_ns;
	int told; /* by its first parameter, an unsigned number of microseconds */
	int loaded; /* into the device: by its first launch */
	struct CUfunc_st *next;
};

struct CUstream_st *fg_stream(CUstream stream)
{
	if (stream > (CUstream)2)
		return stream;
	int ordinal = fg_current();
	return ordinal < 0 ? NULL : &fake.stream0[ordinal];
}

int fg_minor(const struct CUstream_st *s)
{
	return fake.gpu[s->ordinal]->minor;
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
	(*stream)->non_blocking = flags == 1;
	return cuCtxGetCurrent(&(*stream)->made_in);
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
	fg_clock_spend(FG_QUERY_NS);
	return fg_timeline_passed(fg_minor(s), __atomic_load_n(&s->tail, __ATOMIC_RELAXED))
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_NOT_READY;
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
	*context = stream > (CUstream)2 ? stream->made_in : fg_context();
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
	if (fg_spoils())
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	fg_timeline_wait(fg_minor(s), __atomic_load_n(&s->tail, __ATOMIC_RELAXED));
	fg_drain_pools(s->ordinal);
	return CUDA_SUCCESS;
}

CUresult cuStreamSynchronize_ptsz(CUstream stream)
{
	return cuStreamSynchronize(stream);
}

/*
 * Work of one device is one timeline, so its end is the end of everything of ours, or a bit later.
 */
void fg_drain(int ordinal)
{
	fg_lock();
	uint64_t end = fg_timeline_end(fake.gpu[ordinal]->minor);
	fg_unlock();
	fg_timeline_wait(fake.gpu[ordinal]->minor, end);
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
	CUresult r = fg_module_open(*module, image);
	if (r != CUDA_SUCCESS)
		free(*module);
	return r;
}

CUresult cuModuleUnload(CUmodule module)
{
	if (!module)
		return CUDA_ERROR_INVALID_HANDLE;
	fg_module_close(module);
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
	unsigned long us = 0;
	char tail[3] = "";
	if (!function || !module || !name)
		return CUDA_ERROR_INVALID_VALUE;
	int told = !strcmp(name, "work_us");
	if (!told &&
	    (sscanf(name, "work_%lu%2s", &us, tail) != 2 || tail[0] != 'u' || tail[1] != 's'))
		return CUDA_ERROR_NOT_FOUND;
	struct CUfunc_st *f = calloc(1, sizeof *f);
	*f = (struct CUfunc_st){
		.duration_ns = us * 1000, .told = told, .next = module->functions};
	module->functions = f;
	*function = f;
	return CUDA_SUCCESS;
}

/*
 * Waits for a place in the stream's queue: what was queued FG_QUEUE_DEPTH calls ago must have
 * ended; marks take places, too.
 */
static void wait_for_place(struct CUstream_st *s)
{
	uint64_t oldest = __atomic_load_n(&s->ends[s->launches % FG_QUEUE_DEPTH], __ATOMIC_RELAXED);
	if (oldest && !fg_timeline_passed(fg_minor(s), oldest))
		fg_timeline_wait(fg_minor(s), oldest);
}

uint64_t fg_enqueue(struct CUstream_st *s, uint64_t ns)
{
	fg_clock_spend(ns ? FG_LAUNCH_NS : FG_MARK_NS);
	wait_for_place(s);
	int alone = fg_clock_place() >= 0; /* one process runs at a time there */
	if (!alone)
		fg_lock();
	uint64_t end = 0;
	if (!fg_state()->device[fg_minor(s)].lost) {
		int apart =
			alone && !ns && s->non_blocking && fg_timeline_passed(fg_minor(s), s->tail);
		end = apart ? fg_timeline_slice(fg_minor(s))
			    : fg_timeline_add(fg_minor(s), s->tail, ns);
		fg_state()->process[fake.slot].busy_ns[fg_minor(s)] += ns;
		__atomic_store_n(&s->tail, end, __ATOMIC_RELAXED);
		__atomic_store_n(&s->ends[s->launches++ % FG_QUEUE_DEPTH], end, __ATOMIC_RELAXED);
	}
	if (!alone)
		fg_unlock();
	fg_clock_return();
	return end;
}

/* What the environment says of all launches. */
static struct {
	uint64_t load_ns;
	int blocking;
} manner;

static void read_manner(void)
{
	const char *ms = getenv("FAKEGPU_LOAD_MS"), *blocking = getenv("CUDA_LAUNCH_BLOCKING");
	manner.load_ns = ms ? strtoull(ms, NULL, 10) * 1000000 : 0;
	manner.blocking = blocking && !strcmp(blocking, "1");
}

/*
 * The first launch of a function loads its code, as lazy loading does it; nothing runs for it
 * meanwhile.
 */
static void load_late(CUfunction function)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, read_manner);
	if (manner.load_ns && !__atomic_exchange_n(&function->loaded, 1, __ATOMIC_RELAXED))
		fg_clock_sleep_until(fg_clock_now() + manner.load_ns);
}

static uint64_t duration(CUfunction function, void **params)
{
	if (!function->told || !params || !params[0])
		return function->duration_ns;
	return *(const unsigned *)params[0] * 1000ULL;
}

static CUresult launch(CUfunction function, CUstream stream, void **params)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	struct CUstream_st *s = fg_stream(stream);
	if (!s)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!function)
		return CUDA_ERROR_INVALID_HANDLE;
	uint64_t ns = duration(function, params);
	if (fg_capture(stream, ns))
		return CUDA_SUCCESS;
	load_late(function);
	uint64_t ticket = fg_enqueue(s, ns);
	if (ticket && manner.blocking)
		fg_timeline_wait(fg_minor(s), ticket);
	return ticket ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

CUresult cuLaunchKernel(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
			unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
			CUstream stream, void **params, void **extra)
{
	(void)shared, (void)extra;
	if (fg_ready() == CUDA_SUCCESS && fg_stream(stream) &&
	    (!function || !gx || !gy || !gz || !bx || !by || !bz || (uint64_t)bx * by * bz > 1024))
		return CUDA_ERROR_INVALID_VALUE;
	return launch(function, stream, params);
}

CUresult cuLaunchKernel_ptsz(CUfunction function, unsigned int gx, unsigned int gy, unsigned int gz,
			     unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
			     CUstream stream, void **params, void **extra)
{
	return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned int gx, unsigned int gy,
				   unsigned int gz, unsigned int bx, unsigned int by,
				   unsigned int bz, unsigned int shared, CUstream stream,
				   void **params)
{
	return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, params, NULL);
}

CUresult cuLaunchCooperativeKernel_ptsz(CUfunction function, unsigned int gx, unsigned int gy,
					unsigned int gz, unsigned int bx, unsigned int by,
					unsigned int bz, unsigned int shared, CUstream stream,
					void **params)
{
	return cuLaunchKernel(function, gx, gy, gz, bx, by, bz, shared, stream, params, NULL);
}

/* One kernel per device, all on streams that were made; the driver refuses two of one device. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *list, unsigned int count,
					      unsigned int flags)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!list || !count || count > (unsigned)fake.count || flags > 3)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned i = 0; i < count; i++)
		for (unsigned k = 0; k <= i; k++)
			if (list[i].hStream <= (CUstream)2 ||
			    (k < i && list[k].hStream->ordinal == list[i].hStream->ordinal))
				return CUDA_ERROR_INVALID_VALUE;
	CUresult r = CUDA_SUCCESS;
	for (unsigned i = 0; i < count && r == CUDA_SUCCESS; i++)
		r = launch(list[i].function, list[i].hStream, list[i].kernelParams);
	return r;
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction function, void **params, void **extra)
{
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	return cuLaunchKernel(function, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX,
			      c->blockDimY, c->blockDimZ, c->sharedMemBytes, c->hStream, params,
			      extra);
}

CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *c, CUfunction function, void **params,
			       void **extra)
{
	return cuLaunchKernelEx(c, function, params, extra);
}

CUresult cuLaunch(CUfunction function)
{
	return launch(function, NULL, NULL);
}

CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
	return width > 0 && height > 0 ? launch(function, NULL, NULL) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
	return width > 0 && height > 0 ? launch(function, stream, NULL) : CUDA_ERROR_INVALID_VALUE;
}
