/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_launch.c: everything that starts work on a device. In a per-thread (_ptsz) twin the
 * stream NULL is the thread's own, which has the handle CU_STREAM_PER_THREAD in all functions.
 * Most wrappers (class pace of hooks.def) come here only where something is limited: else they jump
 * to the driver.
 */
#include "memory/graphs.h"
#include "hooks/launch_key.h"
#include "compute/limiter.h"
#include "driver/resolve.h"
#include "settings/settings.h"

static struct launch launch_of(CUstream stream, CUfunction f, unsigned gx, unsigned gy, unsigned gz,
			       unsigned bx, unsigned by, unsigned bz)
{
	return (struct launch){.stream = stream,
			       .key = launch_key(f, gx, gy, gz, bx, by, bz),
			       .kin = launch_kin(f, gx, gy, gz, bx, by, bz)};
}

CUresult hook_launch_kernel(original_launch_kernel original, CUfunction f, unsigned int gx,
			    unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
			    unsigned int bz, unsigned int shared, CUstream stream, void **params,
			    void **extra)
{
	struct launch l = launch_of(stream, f, gx, gy, gz, bx, by, bz);
	limiter_before(&l);
	return limiter_after(&l,
			     original(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra));
}

CUresult hook_launch_kernel_ptsz(original_launch_kernel_ptsz original, CUfunction f,
				 unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx,
				 unsigned int by, unsigned int bz, unsigned int shared,
				 CUstream stream, void **params, void **extra)
{
	struct launch l = launch_of(launch_thread_stream(stream), f, gx, gy, gz, bx, by, bz);
	limiter_before(&l);
	return limiter_after(&l,
			     original(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra));
}

CUresult hook_launch_together(original_launch_together original, CUfunction f, unsigned int gx,
			      unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by,
			      unsigned int bz, unsigned int shared, CUstream stream, void **params)
{
	struct launch l = launch_of(stream, f, gx, gy, gz, bx, by, bz);
	limiter_before(&l);
	return limiter_after(&l, original(f, gx, gy, gz, bx, by, bz, shared, stream, params));
}

CUresult hook_launch_together_ptsz(original_launch_together_ptsz original, CUfunction f,
				   unsigned int gx, unsigned int gy, unsigned int gz,
				   unsigned int bx, unsigned int by, unsigned int bz,
				   unsigned int shared, CUstream stream, void **params)
{
	struct launch l = launch_of(launch_thread_stream(stream), f, gx, gy, gz, bx, by, bz);
	limiter_before(&l);
	return limiter_after(&l, original(f, gx, gy, gz, bx, by, bz, shared, stream, params));
}

#define MOST_DEVICES 64

static struct launch launch_of_params(const CUDA_LAUNCH_PARAMS *p)
{
	return launch_of(p->hStream, p->function, p->gridDimX, p->gridDimY, p->gridDimZ,
			 p->blockDimX, p->blockDimY, p->blockDimZ);
}

/*
 * One kernel on each of several devices. A thread measures one device at a time, so each pays by
 * estimate but for the last, which is measured; it is another one every time.
 */
CUresult hook_launch_devices(original_launch_devices original, CUDA_LAUNCH_PARAMS *list,
			     unsigned int count, unsigned int flags)
{
	static unsigned turn;
	struct launch l[MOST_DEVICES];
	if (limiter_idle() || !list || !count || count > MOST_DEVICES)
		return original(list, count, flags);
	unsigned first = __atomic_fetch_add(&turn, 1, __ATOMIC_RELAXED), last = 0;
	for (unsigned i = 0; i < count; i++) {
		last = (first + i) % count;
		l[last] = launch_of_params(&list[last]);
		limiter_before(&l[last]);
		if (i + 1 < count)
			limiter_pay_by_estimate(&l[last]);
	}
	return limiter_after(&l[last], original(list, count, flags));
}

static struct launch launch_of_config(CUstream stream, const CUlaunchConfig *c, CUfunction f)
{
	if (!c)
		return (struct launch){.key = launch_key_of_config(c, f)};
	return launch_of(stream, f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX,
			 c->blockDimY, c->blockDimZ);
}

CUresult hook_launch_ex(original_launch_ex original, const CUlaunchConfig *c, CUfunction f,
			void **params, void **extra)
{
	struct launch l = launch_of_config(c ? c->hStream : NULL, c, f);
	limiter_before(&l);
	return limiter_after(&l, original(c, f, params, extra));
}

CUresult hook_launch_ex_ptsz(original_launch_ex_ptsz original, const CUlaunchConfig *c,
			     CUfunction f, void **params, void **extra)
{
	struct launch l = launch_of_config(launch_thread_stream(c ? c->hStream : NULL), c, f);
	limiter_before(&l);
	return limiter_after(&l, original(c, f, params, extra));
}

/* The API before CUDA 4: the block's shape was set beforehand. */
static struct launch launch_of_grid(CUstream stream, CUfunction f, int width, int height)
{
	return launch_of(stream, f, (unsigned)width, (unsigned)height, 1, 0, 0, 0);
}

CUresult hook_launch_plain(original_launch_plain original, CUfunction f)
{
	struct launch l = launch_of_grid(NULL, f, 1, 1);
	limiter_before(&l);
	return limiter_after(&l, original(f));
}

CUresult hook_launch_grid(original_launch_grid original, CUfunction f, int width, int height)
{
	struct launch l = launch_of_grid(NULL, f, width, height);
	limiter_before(&l);
	return limiter_after(&l, original(f, width, height));
}

CUresult hook_launch_grid_async(original_launch_grid_async original, CUfunction f, int width,
				int height, CUstream stream)
{
	struct launch l = launch_of_grid(stream, f, width, height);
	limiter_before(&l);
	return limiter_after(&l, original(f, width, height, stream));
}

/* A graph that allocates is refused when there is no room for it. */
static CUresult launch_backed(original_graph_launch original, CUgraphExec exec, CUstream stream,
			      CUstream at)
{
	struct graph_run run;
	CUresult r = graph_run_begin(&run, exec, at);
	return r == CUDA_SUCCESS ? graph_run_end(&run, original(exec, stream)) : r;
}

/* `at` is the stream as all functions know it. */
static CUresult launch_graph(original_graph_launch original, CUgraphExec exec, CUstream stream,
			     CUstream at)
{
	if (limiter_idle())
		return launch_backed(original, exec, stream, at);
	struct launch l = {.stream = at, .key = (uintptr_t)exec | 1, .graph = 1};
	limiter_before(&l);
	return limiter_after(&l, launch_backed(original, exec, stream, at));
}

CUresult hook_graph_launch(original_graph_launch original, CUgraphExec exec, CUstream stream)
{
	return launch_graph(original, exec, stream, stream);
}

CUresult hook_graph_launch_ptsz(original_graph_launch_ptsz original, CUgraphExec exec,
				CUstream stream)
{
	return launch_graph(original, exec, stream, launch_thread_stream(stream));
}
