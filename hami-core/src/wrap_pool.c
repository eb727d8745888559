/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_pool.c: stream-ordered memory. What a pool has reserved from the device is
 * charged, not the single allocation: a pool keeps what is freed into it.
 *
 * Lock order: pools.mutex before the region's. No call of the driver that can wait is made
 * under it: an allocation waits for a place in its stream's queue, and giving one back waits for the
 * stream, which may need another thread. So several calls can be under way in one pool, and what they
 * make it grow by is the pool's, not one call's: see settle.
 */
#include <pthread.h>
#include <stdlib.h>

#include "account.h"
#include "limit.h"
#include "overhead.h"
#include "places.h"
#include "region.h"
#include "resolve.h"
#include "runtime.h"
#include "table.h"

#define LARGEST (1ULL << 56) /* larger requests are counted as this, so that sums do not overflow */

/* Where a pool's memory is, when it is not an index in the limits. */
enum { IN_HOST = -1, WHERE_USED = -2 };

struct pool {
	CUmemoryPool handle; /* NULL: destroyed, and still in use */
	int leaving;         /* the driver is destroying it: it must not be asked about it */
	int device;          /* index in the limits, IN_HOST, or WHERE_USED until it is used first */
	int managed;         /* the driver's figure may lack what lies in the host: the larger one counts */
	uint64_t charged;
	uint64_t pending; /* reserved for calls under way, and not taken by the pool yet */
	uint64_t doomed;  /* grown beyond the limit, not charged, and about to be given back */
	uint64_t solid;   /* while some is: what the pool had before, which others may use */
	uint64_t live;    /* bytes of allocations that were not freed, those under way included */
	int calls;        /* calls under way: the record stays */
	struct pool *next;
};

static struct {
	pthread_mutex_t mutex;
	struct pool *first;
} pools = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct pool *find(CUmemoryPool handle)
{
	struct pool *p = pools.first;
	while (p && p->handle != handle)
		p = p->next;
	return p;
}

static struct pool *find_or_add(CUmemoryPool handle, int device)
{
	struct pool *p = find(handle);
	if (p || !(p = calloc(1, sizeof *p)))
		return p;
	*p = (struct pool){.handle = handle, .device = device, .next = pools.first};
	return pools.first = p;
}

/* Bytes that a pool has of its device, as far as that is known (needs the mutex). */
static uint64_t held(const struct pool *p)
{
	uint64_t bytes = 0, used = limit_pages(p->live);
	fn_cuMemPoolGetAttribute get = ORIGINAL(cuMemPoolGetAttribute);
	if (!p->handle)
		return used;
	if (p->leaving)
		return p->charged;
	if (!get || get(p->handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes) != CUDA_SUCCESS)
		bytes = 0;
	return p->managed && used > bytes ? used : bytes;
}

/*
 * Charges what the pool holds now, and returns that (needs the mutex). What it has grown by is taken from what calls under
 * way have reserved. Growth beyond that is theirs to answer for while there are any, and they do when they end; without
 * them it is charged whatever the limit says: the driver has it already. What no call can need any more goes back.
 */
static uint64_t settle(struct pool *p)
{
	if (p->device < 0)
		return 0;
	uint64_t now = held(p), keep = 0;
	if (now < p->charged) {
		region_release(p->device, p->charged - now);
		p->charged = now;
	}
	uint64_t grown = now - p->charged, covered = grown < p->pending ? grown : p->pending;
	p->pending -= covered;
	p->charged += covered;
	if (grown > covered && !p->calls) {
		region_force(p->device, grown - covered);
		p->charged = now;
	}
	if (p->doomed > now - p->charged)
		p->doomed = now - p->charged;
	if (p->calls && p->live > now)
		keep = limit_pages(p->live - now);
	if (p->pending > keep) {
		region_release(p->device, p->pending - keep);
		p->pending = keep;
	}
	return now;
}

void pools_refresh(void)
{
	pthread_mutex_lock(&pools.mutex);
	for (struct pool *p = pools.first; p; p = p->next)
		settle(p);
	pthread_mutex_unlock(&pools.mutex);
}

/* Unlinks a destroyed pool that nothing uses any more. */
static void forget_if_unused(struct pool *p)
{
	struct pool **at = &pools.first;
	if (p->handle || p->live || p->calls)
		return;
	while (*at != p)
		at = &(*at)->next;
	*at = p->next;
	free(p);
}

void pool_freed(const struct table_entry *entry)
{
	struct pool *p = (struct pool *)(uintptr_t)entry->link;
	pthread_mutex_lock(&pools.mutex);
	p->live -= entry->size;
	settle(p);
	forget_if_unused(p);
	pthread_mutex_unlock(&pools.mutex);
}

void pools_after_fork(void)
{
	pthread_mutex_init(&pools.mutex, NULL);
	pools.first = NULL;
}

/*
 * Reserves what the pool is going to need for `bytes` more beyond what it holds, *before (needs the mutex). 0, or -1. What is
 * about to be given back is not to be used again: it could not be given back then.
 */
static int reserve(struct pool *p, uint64_t bytes, uint64_t *before)
{
	uint64_t now = settle(p);
	if (p->doomed && p->solid < now)
		now = p->solid;
	*before = now;
	/* by our own count: the driver's does not fall when pooled memory is freed by cuMemFree */
	uint64_t more = p->live + bytes > now ? limit_pages(p->live + bytes - now) : 0;
	more = more > p->pending ? more - p->pending : 0;
	if (more && account_reserve_once(p->device, more))
		return -1;
	p->pending += more;
	p->live += bytes;
	return 0;
}

/* Answers for growth that nobody had reserved (needs the mutex). The bytes of it that there is no room for: they must go back. */
static uint64_t cover(struct pool *p, uint64_t before)
{
	uint64_t now = settle(p), more = now - p->charged - p->doomed;
	if (!more || account_reserve_once(p->device, more) == 0) {
		p->charged += more;
		return 0;
	}
	p->solid = p->doomed && p->solid < before ? p->solid : before;
	p->doomed += more;
	return more;
}

/* A call in the pool ends, and what it had to give back is given back (needs the mutex). */
static void leave(struct pool *p, uint64_t given_back)
{
	p->doomed -= given_back < p->doomed ? given_back : p->doomed;
	p->calls--;
	settle(p);
	forget_if_unused(p);
}

struct request {
	CUdeviceptr *pointer;
	size_t bytes;
	CUmemoryPool pool;
	CUstream stream;
	/* exactly one is set */
	original_mem_alloc_async alloc;
	original_mem_alloc_from_pool from_pool;
};

static CUresult call(const struct request *q)
{
	return q->alloc ? q->alloc(q->pointer, q->bytes, q->stream)
			: q->from_pool(q->pointer, q->bytes, q->pool, q->stream);
}

/* The stream a request means, for calls that are not the per-thread twins. */
static CUstream stream_of(const struct request *q)
{
	int per_thread = q->alloc ? q->alloc == ORIGINAL(cuMemAllocAsync_ptsz)
				  : q->from_pool == ORIGINAL(cuMemAllocFromPoolAsync_ptsz);
	return per_thread && !q->stream ? CU_STREAM_PER_THREAD : q->stream;
}

/* Whether the stream records into a graph, or what else there is to say of it when the driver does not. */
static int recording(CUstream stream, int unknown)
{
	int status = 0;
	fn_cuStreamIsCapturing ask = ORIGINAL(cuStreamIsCapturing);
	return ask && ask(stream, &status) == CUDA_SUCCESS ? status != 0 : unknown;
}

/* Waits for the stream unless it is recording. Waiting must not spoil what other streams record. */
static void wait_for(CUstream stream)
{
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	fn_cuStreamSynchronize synchronize = ORIGINAL(cuStreamSynchronize);
	fn_cuThreadExchangeStreamCaptureMode exchange = ORIGINAL(cuThreadExchangeStreamCaptureMode);
	if (!synchronize || recording(stream, 1) || (exchange && exchange(&mode) != CUDA_SUCCESS))
		return;
	synchronize(stream);
	if (exchange)
		exchange(&mode);
}

/*
 * The pool took more than was reserved and more than is left: give the allocation back.
 * A pool can be trimmed of it only when the stream has come to the freeing, which may take another
 * thread to do something: nothing is held meanwhile. pre: the call is counted, so the record stays.
 */
static CUresult take_back(struct pool *p, CUmemoryPool handle, const struct request *q, uint64_t over)
{
	int device = p->device;
	fn_cuMemFreeAsync release = ORIGINAL(cuMemFreeAsync);
	fn_cuMemPoolTrimTo trim = ORIGINAL(cuMemPoolTrimTo);
	if (release)
		release(*q->pointer, stream_of(q));
	wait_for(stream_of(q));
	if (trim)
		trim(handle, 0);
	pthread_mutex_lock(&pools.mutex);
	leave(p, over);
	pthread_mutex_unlock(&pools.mutex);
	return account_refuse(device, q->bytes);
}

/* Looks once more, since streams may have synchronised and pools give back by themselves. 0, or -1 and the call has ended. */
static int reserve_again(struct pool *p, uint64_t bytes, uint64_t *before)
{
	account_refresh(p->device);
	pthread_mutex_lock(&pools.mutex);
	int refused = reserve(p, bytes, before);
	if (refused)
		leave(p, 0);
	pthread_mutex_unlock(&pools.mutex);
	return refused;
}

/* Books what came of a call (needs the mutex). Bytes: too much, so that it must be given back. */
static uint64_t book(struct pool *p, const struct request *q, CUresult result, uint64_t bytes, uint64_t before)
{
	struct table_entry e = {.kind = TABLE_POOLED, .device = p->device, .size = bytes, .link = (uintptr_t)p};
	uint64_t over = result == CUDA_SUCCESS ? cover(p, before) : 0;
	if (result == CUDA_SUCCESS && !over)
		e.key = *q->pointer;
	if (!e.key || table_add(&e))
		p->live -= bytes;
	if (!over)
		leave(p, 0);
	return over;
}

static CUresult allocate(const struct request *q, CUmemoryPool handle, int device)
{
	uint64_t bytes = q->bytes < LARGEST ? q->bytes : LARGEST, before;
	pthread_mutex_lock(&pools.mutex);
	struct pool *p = find_or_add(handle, device);
	if (!p || p->device == IN_HOST) {
		pthread_mutex_unlock(&pools.mutex);
		return p ? call(q) : CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (p->device < 0)
		p->device = device;
	device = p->device;
	p->calls++;
	int refused = reserve(p, bytes, &before);
	pthread_mutex_unlock(&pools.mutex);
	if (refused && reserve_again(p, bytes, &before))
		return account_refuse(device, q->bytes);
	region_flight(device, 1);
	CUresult r = call(q);
	pthread_mutex_lock(&pools.mutex);
	uint64_t over = book(p, q, r, bytes, before);
	pthread_mutex_unlock(&pools.mutex);
	if (over)
		r = take_back(p, handle, q, over);
	region_flight(device, -1);
	return r;
}

/* The device and the context of a stream, which need not be the current ones; those for the default streams. */
static CUresult device_of(CUstream stream, CUdevice *out, CUcontext *context)
{
	fn_cuCtxGetDevice device = ORIGINAL(cuCtxGetDevice);
	if (!device)
		return CUDA_ERROR_NOT_SUPPORTED;
	*context = stream_context(stream);
	int entered = context_enter(*context);
	CUresult r = device(out);
	context_leave(entered);
	return r;
}

/* The pool a request goes to: the named one, else the current one of the stream's device. */
static CUmemoryPool target(const struct request *q, CUdevice ordinal)
{
	CUmemoryPool pool = NULL;
	fn_cuDeviceGetMemPool of_device = ORIGINAL(cuDeviceGetMemPool);
	if (q->from_pool)
		return q->pool;
	return of_device && of_device(&pool, ordinal) == CUDA_SUCCESS ? pool : NULL;
}

static CUresult guarded(const struct request *q)
{
	CUdevice ordinal;
	CUcontext context;
	enum gate gate = runtime_gate();
	if (gate == GATE_CLOSED)
		return CUDA_ERROR_NOT_PERMITTED;
	if (gate == GATE_OPEN || !q->bytes || device_of(q->stream, &ordinal, &context) != CUDA_SUCCESS)
		return call(q); /* not limited, or for the driver to refuse */
	int device = runtime_device(ordinal);
	CUmemoryPool handle = target(q, ordinal);
	CUstream stream = stream_of(q);
	if (device == -1)
		return CUDA_ERROR_NOT_PERMITTED;
	if (device < 0 || !handle || (stream && recording(stream, 0)))
		return call(q); /* what a stream records is the graph's memory, taken when that is launched */
	overhead_seen(device, context);
	return allocate(q, handle, device);
}

CUresult hook_mem_alloc_async(original_mem_alloc_async original, CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
	return guarded(&(struct request){.pointer = pointer, .bytes = bytes, .stream = stream, .alloc = original});
}

CUresult hook_mem_alloc_from_pool(original_mem_alloc_from_pool original, CUdeviceptr *pointer, size_t bytes,
				  CUmemoryPool pool, CUstream stream)
{
	return guarded(&(struct request){pointer, bytes, pool, stream, .from_pool = original});
}

CUresult hook_mem_free_async(original_mem_free_async original, CUdeviceptr pointer, CUstream stream)
{
	struct freeing f;
	free_begin(&f, pointer);
	return free_end(&f, original(pointer, stream));
}

/* Where the memory of a new pool is going to be. Managed memory without a device of its own is its user's, as by cuMemAllocManaged. */
static int home_of(const CUmemPoolProps *props)
{
	if (props->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		return runtime_device(props->location.id);
	return props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED ? WHERE_USED : IN_HOST;
}

CUresult hook_mem_pool_create(original_mem_pool_create original, CUmemoryPool *pool, const CUmemPoolProps *props)
{
	CUresult r = original(pool, props);
	if (r != CUDA_SUCCESS || runtime_gate() != GATE_LIMITED)
		return r;
	int home = home_of(props), on_device = props->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
	if (on_device && home < 0)
		return r; /* a device that is not in the limits: its allocations are refused */
	pthread_mutex_lock(&pools.mutex);
	struct pool *p = find(*pool);
	if (p) { /* the driver gives its number again, so it is gone: the thread that destroyed it is about to say so */
		p->handle = NULL;
		settle(p);
		forget_if_unused(p);
	}
	p = find_or_add(*pool, home);
	if (p)
		p->managed = props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
	pthread_mutex_unlock(&pools.mutex);
	return r;
}

/* A call about a pool begins; its record, NULL when there is none. */
static struct pool *enter(CUmemoryPool handle, int leaving)
{
	pthread_mutex_lock(&pools.mutex);
	struct pool *p = handle ? find(handle) : NULL;
	if (p) {
		p->calls++;
		p->leaving |= leaving;
	}
	pthread_mutex_unlock(&pools.mutex);
	return p;
}

/* Memory of a destroyed pool that is still in use stays with the driver until it is freed; so does its charge. */
CUresult hook_mem_pool_destroy(original_mem_pool_destroy original, CUmemoryPool handle)
{
	struct pool *p = enter(handle, 1);
	CUresult r = original(handle);
	if (!p)
		return r;
	pthread_mutex_lock(&pools.mutex);
	p->leaving = 0;
	if (r == CUDA_SUCCESS)
		p->handle = NULL;
	leave(p, 0);
	pthread_mutex_unlock(&pools.mutex);
	return r;
}

CUresult hook_mem_pool_trim_to(original_mem_pool_trim_to original, CUmemoryPool handle, size_t keep)
{
	struct pool *p = enter(handle, 0);
	CUresult r = original(handle, keep);
	if (!p)
		return r;
	pthread_mutex_lock(&pools.mutex);
	leave(p, 0);
	pthread_mutex_unlock(&pools.mutex);
	return r;
}
