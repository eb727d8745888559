/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_launch.c: everything that starts work on a device. In a per-thread (_ptsz) twin the
 * stream NULL is the thread's own, which has the handle CU_STREAM_PER_THREAD in all functions.
 */
#include "account.h"
#include "limiter.h"
#include "resolve.h"
#include "runtime.h"

#define PACED(at, what, whole, call)                                             \
	do {                                                                     \
		if (__builtin_expect(limiter_idle(), 1))                         \
			return call;                                             \
		struct launch l = {.stream = at, .key = what, .graph = whole};   \
		limiter_before(&l);                                              \
		return limiter_after(&l, call);                                  \
	} while (0)

/* Work is told apart by its function and its size. */
static inline uint64_t key_of(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz)
{
	uint64_t grid = gx + ((uint64_t)gy << 24) + ((uint64_t)gz << 44);
	uint64_t block = bx + ((uint64_t)by << 11) + ((uint64_t)bz << 22);
	return ((uintptr_t)function ^ grid * 0xff51afd7ed558ccdULL ^ block * 0xc4ceb9fe1a85ec53ULL) | 1;
}

static inline CUstream own(CUstream stream)
{
	return stream ? stream : CU_STREAM_PER_THREAD;
}

CUresult hook_launch_kernel(original_launch_kernel original, CUfunction f, unsigned int gx, unsigned int gy, unsigned int gz,
			    unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared, CUstream stream,
			    void **params, void **extra)
{
	PACED(stream, key_of(f, gx, gy, gz, bx, by, bz), 0, original(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra));
}

CUresult hook_launch_kernel_ptsz(original_launch_kernel_ptsz original, CUfunction f, unsigned int gx, unsigned int gy,
				 unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
				 CUstream stream, void **params, void **extra)
{
	PACED(own(stream), key_of(f, gx, gy, gz, bx, by, bz), 0,
	      original(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra));
}

CUresult hook_launch_together(original_launch_together original, CUfunction f, unsigned int gx, unsigned int gy,
			      unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
			      CUstream stream, void **params)
{
	PACED(stream, key_of(f, gx, gy, gz, bx, by, bz), 0, original(f, gx, gy, gz, bx, by, bz, shared, stream, params));
}

CUresult hook_launch_together_ptsz(original_launch_together_ptsz original, CUfunction f, unsigned int gx, unsigned int gy,
				   unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared,
				   CUstream stream, void **params)
{
	PACED(own(stream), key_of(f, gx, gy, gz, bx, by, bz), 0, original(f, gx, gy, gz, bx, by, bz, shared, stream, params));
}

#define MOST_DEVICES 64

static uint64_t key_of_params(const CUDA_LAUNCH_PARAMS *p)
{
	return key_of(p->function, p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX, p->blockDimY, p->blockDimZ);
}

/*
 * One kernel on each of several devices. A thread measures one device at a time, so each pays by
 * estimate but for the last, which is measured; it is another one every time.
 */
CUresult hook_launch_devices(original_launch_devices original, CUDA_LAUNCH_PARAMS *list, unsigned int count, unsigned int flags)
{
	static unsigned turn;
	struct launch l[MOST_DEVICES];
	if (limiter_idle() || !list || !count || count > MOST_DEVICES)
		return original(list, count, flags);
	unsigned first = __atomic_fetch_add(&turn, 1, __ATOMIC_RELAXED), last = 0;
	for (unsigned i = 0; i < count; i++) {
		last = (first + i) % count;
		l[last] = (struct launch){.stream = list[last].hStream, .key = key_of_params(&list[last])};
		limiter_before(&l[last]);
		if (i + 1 < count)
			limiter_estimate(&l[last]);
	}
	return limiter_after(&l[last], original(list, count, flags));
}

static uint64_t key_of_config(const CUlaunchConfig *c, CUfunction f)
{
	return c ? key_of(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ) : 1;
}

CUresult hook_launch_ex(original_launch_ex original, const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	PACED(c ? c->hStream : NULL, key_of_config(c, f), 0, original(c, f, params, extra));
}

CUresult hook_launch_ex_ptsz(original_launch_ex_ptsz original, const CUlaunchConfig *c, CUfunction f, void **params, void **extra)
{
	PACED(own(c ? c->hStream : NULL), key_of_config(c, f), 0, original(c, f, params, extra));
}

/* The API before CUDA 4: the block's shape was set beforehand. */
CUresult hook_launch_plain(original_launch_plain original, CUfunction f)
{
	PACED(NULL, key_of(f, 1, 1, 1, 0, 0, 0), 0, original(f));
}

CUresult hook_launch_grid(original_launch_grid original, CUfunction f, int width, int height)
{
	PACED(NULL, key_of(f, (unsigned)width, (unsigned)height, 1, 0, 0, 0), 0, original(f, width, height));
}

CUresult hook_launch_grid_async(original_launch_grid_async original, CUfunction f, int width, int height, CUstream stream)
{
	PACED(stream, key_of(f, (unsigned)width, (unsigned)height, 1, 0, 0, 0), 0, original(f, width, height, stream));
}

/* What a graph allocates is reserved when it is launched; the driver is asked only under a limit. */
static CUresult launched(CUresult result)
{
	CUdevice current;
	fn_cuCtxGetDevice get = ORIGINAL(cuCtxGetDevice);
	if (result == CUDA_SUCCESS && runtime_gate() == GATE_LIMITED && get && get(&current) == CUDA_SUCCESS)
		account_graph_memory(current);
	return result;
}

CUresult hook_graph_launch(original_graph_launch original, CUgraphExec exec, CUstream stream)
{
	PACED(stream, (uintptr_t)exec | 1, 1, launched(original(exec, stream)));
}

CUresult hook_graph_launch_ptsz(original_graph_launch_ptsz original, CUgraphExec exec, CUstream stream)
{
	PACED(own(stream), (uintptr_t)exec | 1, 1, launched(original(exec, stream)));
}
