/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pools.h: what the memory pools of this process have reserved from their devices. A pool is
 * charged, not the single allocation, because a pool keeps what is freed into it. Thread-safe.
 */
#ifndef POOLS_H
#define POOLS_H

#include <stdint.h>

#include "cuda_abi.h"
#include "model/table.h"

/* Where a pool's memory is, when it is not an index in the limits. */
enum {
	POOL_NOT_IN_LIMITS = -1, /* on a device that gives out no memory */
	POOL_IN_HOST = -2,
	POOL_WHERE_USED = -3 /* on the device of the stream that uses it first */
};

/* The driver has made a pool. `home`: an index in the limits, or one of the above. */
void pool_made(CUmemoryPool handle, int home, int managed);
/* Where a pool is that was not seen to be made, so that pool_is_known said no. */
void pool_found(CUmemoryPool handle, int home, int managed);
int pool_is_known(CUmemoryPool handle);

/* An allocation from a pool: begin, the driver's call, end with its answer. */
struct pool_alloc {
	struct pool *pool;
	int device; /* whose memory it takes: index in the limits */
	uint64_t bytes, before;
};
enum pool_answer {
	POOL_GO,     /* reserved: pool_alloc_end must follow */
	POOL_FREE,   /* not charged: nothing more is to be said of it */
	POOL_CLOSED, /* its device is not in the limits */
	POOL_REFUSED /* there is no room for it */
};
/* `device` is for a pool that is not known, or where it is used. */
enum pool_answer pool_alloc_begin(struct pool_alloc *a, CUmemoryPool handle, int device,
				  uint64_t bytes);
/*
 * The bytes that the pool took and that there is no room for: free the allocation, trim the pool,
 * and end with pool_alloc_undone.
 */
uint64_t pool_alloc_end(struct pool_alloc *a, CUresult result, CUdeviceptr pointer);
void pool_alloc_undone(struct pool_alloc *a, uint64_t over);

/*
 * An allocation of a pool, or a freeing into it, may have been recorded into a graph instead. From
 * then on the driver is asked what is in use of the pool.
 */
void pool_doubt(struct pool *p);

/* Around a call that trims a pool, or destroys it (`leaving`). NULL: a pool that is not known. */
struct pool *pool_call_begin(CUmemoryPool handle, int leaving);
void pool_call_end(struct pool *p, int leaving, int destroyed);

/*
 * An allocation of a pool, taken out of the table, was freed; or perhaps its freeing was recorded.
 */
void pool_freed(const struct table_entry *entry);
void pool_perhaps_freed(const struct table_entry *entry);

/* Reads again what the pools of a device hold, which shrinks by itself when streams synchronise. */
void pools_refresh(int device);
/* The same after this process has synchronised, so that others may have what was given back. */
void pools_synchronised(void);

/* In a child after fork. */
void pools_after_fork(void);

#endif
