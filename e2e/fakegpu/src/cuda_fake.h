/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_fake.h: what the parts of the fake libcuda.so.1 share.
 *
 * Lock order: fake.mutex (this process's objects), then fg_lock (the machine).
 */
#ifndef FAKEGPU_CUDA_FAKE_H
#define FAKEGPU_CUDA_FAKE_H

#include <pthread.h>

#include "cuda_abi.h"
#include "state.h"

#define FG_EXPORT __attribute__((visibility("default")))
#define FG_SM_THREADS 2048
#define FG_PAGE (2ULL << 20) /* the driver backs memory by pages of 2 MiB */

/* All exported functions, so that definitions are checked against one list. */
struct fg_entry {
	const char *base;   /* what cuGetProcAddress is asked for */
	const char *symbol; /* what the linker sees */
	int since;          /* CUDA version that introduced it: 1000 * major + 10 * minor */
	int per_thread;     /* the _ptsz or _ptds twin */
	void *address;
	void *other; /* jumps to address: see FAKEGPU_PROC_POINTERS */
};
extern const struct fg_entry fg_entries[];
extern const size_t fg_entry_count;

/* 1000 * major + 10 * minor: younger entries do not exist. */
extern const int fg_generation;

struct CUctx_st {
	int ordinal;
	int primary;
	int references; /* of a created one: how often it is attached */
	/* of a green one: the primary context, whose memory it uses; else NULL */
	struct CUctx_st *owner;
	uint64_t cost; /* bytes this context takes, and all that is loaded into it */
	uint64_t limit[3]; /* what cuCtxSetLimit has set, 0: nothing yet */
	struct CUctx_st *next;
};

struct CUstream_st {
	int ordinal;
	/* whose resources it uses: of a green one the primary one. NULL: a default stream */
	struct CUctx_st *context;
	struct CUctx_st *made_in; /* which was current when it was made */
	uint64_t tail; /* ticket of the last work queued on it: see cuda_timeline.h */
	uint64_t launches, ends[1024]; /* tickets of the last FG_QUEUE_DEPTH, by launch number */
	int non_blocking; /* does not wait for the default stream */
	struct CUgraph_st *recording; /* see cuda_work_graph.c */
};

struct fg_fake {
	pthread_mutex_t mutex;
	CUresult status; /* of cuInit; CUDA_ERROR_NOT_INITIALIZED before it */
	int forked;      /* a child of an initialised process: CUDA is gone */
	struct fg_topology topology;
	int slot;
	int count; /* devices after CUDA_VISIBLE_DEVICES */
	struct fg_gpu *gpu[FG_MAX_DEVICES]; /* by CUDA ordinal */
	struct CUctx_st primary[FG_MAX_DEVICES];
	struct CUstream_st stream0[FG_MAX_DEVICES];
};
extern struct fg_fake fake;

/* Waits until this process is not locked for a checkpoint. */
void fg_await_restore(void);

/*
 * CUDA_SUCCESS when cuInit has run in this very process. Waits while it is locked for a checkpoint.
 */
CUresult fg_ready(void);
/*
 * The calling thread's current context while it lives, of a green one its owner, else NULL; and its
 * ordinal, or -1.
 */
struct CUctx_st *fg_context(void);
/* Whether a context has not ended. Under fake.mutex, and asked again there before something is put into one. */
int fg_context_lives(const struct CUctx_st *context);
int fg_current(void);
/* Device by ordinal, NULL when out of range. */
struct fg_gpu *fg_gpu(CUdevice device);

/*
 * What test programs ask of every taking and giving (cuda_watch.c). fg_watch_take is called before
 * one, without locks: 1 when the thread is in a dry run, which takes nothing. The others run under
 * fg_lock after the deed.
 */
int fg_watch_take(int ordinal, uint64_t bytes);
void fg_watch_taken(int ordinal, uint64_t bytes);
void fg_watch_given(int ordinal, uint64_t bytes);
/*
 * Takes (or gives back) physical bytes of a device; CUDA_ERROR_OUT_OF_MEMORY when it has not got
 * them.
 */
CUresult fg_take(int ordinal, uint64_t bytes);
void fg_give(int ordinal, uint64_t bytes);
/* Fails the n-th call of an allocating function: FAKEGPU_FAIL=<function>:<n>:<code>. 0 = go on. */
CUresult fg_injected(const char *function);

/* Whether managed memory may exceed the device: not with FAKEGPU_MANAGED=device. */
int fg_shares_with_host(void);
/* Where a plain allocation lies; 0 when there is none there. */
int fg_block(CUdeviceptr pointer, CUdeviceptr *base, uint64_t *size, int *managed);

/* Releases the plain memory and the arrays of a destroyed context. */
void fg_memory_reset(const struct CUctx_st *context);
void fg_arrays_reset(const struct CUctx_st *context);
/* Takes what a new context costs, or gives it back with all that was loaded into it. */
CUresult fg_context_open(struct CUctx_st *context);
void fg_context_close(struct CUctx_st *context);
/*
 * One mapping more of a physical handle, and one less. NULL when the handle is none. Under
 * fake.mutex.
 */
struct physical;
struct physical *fg_handle_map(CUmemGenericAllocationHandle handle);
void fg_handle_unmap(struct physical *of);
/* Unmaps what is mapped into a sparse array. Under fake.mutex. */
void fg_sparse_reset(const void *array);

/* Gives back what pools need no longer, as a synchronisation does. */
void fg_drain_pools(int ordinal);
/* Frees memory of a graph that has run; 0 when there is none. */
int fg_graph_free(CUdeviceptr pointer);
/* Gives an allocation back to its pool; 0 when it is none of a pool's. */
int fg_pool_free(CUdeviceptr pointer);
/* Waits until a device's streams of this process are done. */
void fg_drain(int ordinal);

/* The device that a place names, by itself or by a part of it; -1: none. */
static inline int fg_ordinal_of(CUmemLocation where)
{
	if (where.type == CU_MEM_LOCATION_TYPE_DEVICE)
		return where.id;
	return where.type == CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN && fg_generation >= 13040 ? where.id & 0xff : -1;
}

static inline uint64_t fg_pages(uint64_t bytes)
{
	return (bytes + FG_PAGE - 1) / FG_PAGE * FG_PAGE;
}

#endif
