/* SPDX-License-Identifier: Apache-2.0 */
/*
 * launch_key.h: what a launch is known by, for its cost: its function and its size. For each way to
 * launch there is a counts_ function, named as its hook: 1 when the launch is counted already and
 * goes straight to the driver.
 */
#ifndef LAUNCH_KEY_H
#define LAUNCH_KEY_H

#include "compute/batch.h"
#include "cuda_abi.h"

static inline uint64_t launch_key(CUfunction function, unsigned gx, unsigned gy, unsigned gz,
				  unsigned bx, unsigned by, unsigned bz)
{
	uint64_t grid = gx + ((uint64_t)gy << 24) + ((uint64_t)gz << 44);
	uint64_t block = bx + ((uint64_t)by << 11) + ((uint64_t)bz << 22);
	return ((uintptr_t)function ^ grid * 0xff51afd7ed558ccdULL ^
		block * 0xc4ceb9fe1a85ec53ULL) |
	       1;
}

/*
 * The key of all sizes between two quarters of a power of two: a program whose sizes never repeat
 * launches them all as often as another one launches one.
 */
static inline uint64_t launch_kin(CUfunction function, unsigned gx, unsigned gy, unsigned gz,
				  unsigned bx, unsigned by, unsigned bz)
{
	uint64_t blocks = (uint64_t)gx * gy * gz;
	unsigned top = 63 - (unsigned)__builtin_clzll(blocks ? blocks : 1);
	unsigned quarter = (unsigned)(top < 2 ? blocks << (2 - top) : blocks >> (top - 2)) & 3;
	return launch_key(function, top << 2 | quarter, 0, ~0u, bx, by, bz);
}

/* The API before CUDA 4: the block's shape was set beforehand. */
static inline uint64_t launch_key_of_grid(CUfunction f, int width, int height)
{
	return launch_key(f, (unsigned)width, (unsigned)height, 1, 0, 0, 0);
}

static inline uint64_t launch_key_of_config(const CUlaunchConfig *c, CUfunction f)
{
	return c ? launch_key(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY,
			      c->blockDimZ)
		 : 1;
}

/*
 * In a per-thread (_ptsz) twin the stream NULL is the thread's own, which has the handle
 * CU_STREAM_PER_THREAD in all functions.
 */
static inline CUstream launch_thread_stream(CUstream stream)
{
	return stream ? stream : CU_STREAM_PER_THREAD;
}

static inline int counts_launch_kernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
				       unsigned bx, unsigned by, unsigned bz, unsigned shared,
				       CUstream stream, void **params, void **extra)
{
	(void)shared, (void)params, (void)extra;
	return batch_try_count(stream, launch_key(f, gx, gy, gz, bx, by, bz));
}

static inline int counts_launch_kernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
					    unsigned bx, unsigned by, unsigned bz, unsigned shared,
					    CUstream stream, void **params, void **extra)
{
	(void)shared, (void)params, (void)extra;
	return batch_try_count(launch_thread_stream(stream), launch_key(f, gx, gy, gz, bx, by, bz));
}

static inline int counts_launch_together(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
					 unsigned bx, unsigned by, unsigned bz, unsigned shared,
					 CUstream stream, void **params)
{
	(void)shared, (void)params;
	return batch_try_count(stream, launch_key(f, gx, gy, gz, bx, by, bz));
}

static inline int counts_launch_together_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz,
					      unsigned bx, unsigned by, unsigned bz,
					      unsigned shared, CUstream stream, void **params)
{
	(void)shared, (void)params;
	return batch_try_count(launch_thread_stream(stream), launch_key(f, gx, gy, gz, bx, by, bz));
}

static inline int counts_launch_ex(const CUlaunchConfig *c, CUfunction f, void **params,
				   void **extra)
{
	(void)params, (void)extra;
	return c && batch_try_count(c->hStream, launch_key_of_config(c, f));
}

static inline int counts_launch_ex_ptsz(const CUlaunchConfig *c, CUfunction f, void **params,
					void **extra)
{
	(void)params, (void)extra;
	return c && batch_try_count(launch_thread_stream(c->hStream), launch_key_of_config(c, f));
}

static inline int counts_launch_plain(CUfunction f)
{
	return batch_try_count(NULL, launch_key_of_grid(f, 1, 1));
}

static inline int counts_launch_grid(CUfunction f, int width, int height)
{
	return batch_try_count(NULL, launch_key_of_grid(f, width, height));
}

static inline int counts_launch_grid_async(CUfunction f, int width, int height, CUstream stream)
{
	return batch_try_count(stream, launch_key_of_grid(f, width, height));
}

/* Whether a question for the end of work is none of the limiter's. */
static inline int counts_stream_query(CUstream stream)
{
	(void)stream;
	return !thread_batch.unsettled;
}

static inline int counts_event_query(CUevent event)
{
	(void)event;
	return !thread_batch.unsettled;
}

#endif
