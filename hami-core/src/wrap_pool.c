/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap_pool.c: stream-ordered memory. What a pool has reserved from the device is
 * charged, not the single allocation: a pool keeps what is freed into it.
 *
 * Lock order: pools.mutex before the region's. It is held over the driver's call, so
 * that growth of a pool can be told apart by allocation.
 */
#include <pthread.h>
#include <stdlib.h>

#include "account.h"
#include "limit.h"
#include "region.h"
#include "resolve.h"
#include "runtime.h"
#include "table.h"

struct pool {
	CUmemoryPool handle; /* NULL: destroyed, and still in use */
	int device;          /* index in the limits; -1: its memory is the host's */
	uint64_t charged;
	uint64_t live; /* bytes of allocations that were not freed */
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

static uint64_t attribute(const struct pool *p, int which)
{
	uint64_t value = 0;
	fn_cuMemPoolGetAttribute get = ORIGINAL(cuMemPoolGetAttribute);
	return get && get(p->handle, which, &value) == CUDA_SUCCESS ? value : 0;
}

/* Charges what the pool holds now, whatever the limit says: the driver has it already. */
static void settle(struct pool *p)
{
	if (p->device < 0)
		return;
	uint64_t now = p->handle ? attribute(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) : limit_pages(p->live);
	if (now > p->charged)
		region_force(p->device, now - p->charged);
	else
		region_release(p->device, p->charged - now);
	p->charged = now;
}

static void settle_all(void)
{
	for (struct pool *p = pools.first; p; p = p->next)
		settle(p);
}

void pools_refresh(void)
{
	pthread_mutex_lock(&pools.mutex);
	settle_all();
	pthread_mutex_unlock(&pools.mutex);
}

/* Unlinks a destroyed pool that nothing uses any more. */
static void forget_if_unused(struct pool *p)
{
	struct pool **at = &pools.first;
	if (p->handle || p->live)
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

/* Reserves what the pool is going to need beyond what it holds. 0 with the amount, or -1. */
static int reserve(struct pool *p, uint64_t bytes, uint64_t *reserved)
{
	for (int attempt = 0; attempt < 2; attempt++) {
		uint64_t held = attribute(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
		/* by our own count: the driver's does not fall when pooled memory is freed by cuMemFree */
		uint64_t need = bytes > UINT64_MAX - p->live ? UINT64_MAX : p->live + bytes;
		*reserved = need > held ? limit_pages(need - held) : 0;
		if (account_reserve_once(p->device, *reserved) == 0)
			return 0;
		settle_all(); /* streams may have synchronised since: pools give back by themselves */
	}
	return -1;
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
 * A pool can be trimmed of it only when the stream has come to the freeing.
 */
static CUresult take_back(struct pool *p, const struct request *q)
{
	fn_cuMemFreeAsync release = ORIGINAL(cuMemFreeAsync);
	fn_cuMemPoolTrimTo trim = ORIGINAL(cuMemPoolTrimTo);
	if (release)
		release(*q->pointer, stream_of(q));
	wait_for(stream_of(q));
	if (trim)
		trim(p->handle, 0);
	settle(p);
	return account_refuse(p->device, q->bytes);
}

static CUresult allocate(struct pool *p, const struct request *q)
{
	uint64_t reserved;
	if (reserve(p, q->bytes, &reserved))
		return account_refuse(p->device, q->bytes);
	CUresult r = call(q);
	uint64_t now = attribute(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
	uint64_t grown = now > p->charged ? now - p->charged : 0;
	if (r == CUDA_SUCCESS && grown > reserved && account_reserve_once(p->device, grown - reserved)) {
		region_release(p->device, reserved);
		return take_back(p, q);
	}
	if (r == CUDA_SUCCESS && grown > reserved)
		reserved = grown;
	region_release(p->device, reserved - (r == CUDA_SUCCESS ? grown : 0));
	p->charged += r == CUDA_SUCCESS ? grown : 0;
	settle(p);
	if (r == CUDA_SUCCESS) {
		struct table_entry e = {.kind = TABLE_POOLED, .device = p->device, .key = *q->pointer,
					.size = q->bytes, .link = (uintptr_t)p};
		p->live += table_add(&e) ? 0 : q->bytes;
	}
	return r;
}

/* The device of a stream, which need not be the current one; that one for the default streams. */
static CUresult device_of(CUstream stream, CUdevice *out)
{
	CUcontext mine = NULL, its = NULL;
	fn_cuCtxGetDevice device = ORIGINAL(cuCtxGetDevice);
	fn_cuStreamGetCtx context_of = ORIGINAL(cuStreamGetCtx);
	fn_cuCtxGetCurrent current = ORIGINAL(cuCtxGetCurrent);
	fn_cuCtxPushCurrent_v2 push = ORIGINAL(cuCtxPushCurrent_v2);
	fn_cuCtxPopCurrent_v2 pop = ORIGINAL(cuCtxPopCurrent_v2);
	if (!device)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (stream <= CU_STREAM_PER_THREAD || !context_of || !current || !push || !pop || context_of(stream, &its) ||
	    (!current(&mine) && mine == its) || push(its))
		return device(out);
	CUresult r = device(out);
	pop(&its);
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
	enum gate gate = runtime_gate();
	if (gate == GATE_CLOSED)
		return CUDA_ERROR_NOT_PERMITTED;
	if (gate == GATE_OPEN || !q->bytes || device_of(q->stream, &ordinal) != CUDA_SUCCESS)
		return call(q); /* not limited, or for the driver to refuse */
	int device = runtime_device(ordinal);
	CUmemoryPool handle = target(q, ordinal);
	if (device == -1)
		return CUDA_ERROR_NOT_PERMITTED;
	if (device < 0 || !handle || (q->stream && recording(stream_of(q), 0)))
		return call(q); /* what a stream records is the graph's memory, taken when that is launched */
	pthread_mutex_lock(&pools.mutex);
	struct pool *p = find_or_add(handle, device);
	if (p && p->device < 0) {
		pthread_mutex_unlock(&pools.mutex);
		return call(q);
	}
	region_flight(device, 1);
	CUresult r = p ? allocate(p, q) : CUDA_ERROR_OUT_OF_MEMORY;
	region_flight(device, -1);
	pthread_mutex_unlock(&pools.mutex);
	return r;
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

CUresult hook_mem_pool_create(original_mem_pool_create original, CUmemoryPool *pool, const CUmemPoolProps *props)
{
	CUresult r = original(pool, props);
	if (r != CUDA_SUCCESS || runtime_gate() != GATE_LIMITED)
		return r;
	int host = props->location.type != CU_MEM_LOCATION_TYPE_DEVICE, device = host ? -1 : runtime_device(props->location.id);
	pthread_mutex_lock(&pools.mutex);
	if (host || device >= 0)
		find_or_add(*pool, device);
	pthread_mutex_unlock(&pools.mutex);
	return r;
}

/* Memory of a destroyed pool that is still in use stays with the driver until it is freed; so does its charge. */
CUresult hook_mem_pool_destroy(original_mem_pool_destroy original, CUmemoryPool handle)
{
	pthread_mutex_lock(&pools.mutex);
	struct pool *p = handle ? find(handle) : NULL;
	CUresult r = original(handle);
	if (p && r == CUDA_SUCCESS) {
		p->handle = NULL;
		settle(p);
		forget_if_unused(p);
	}
	pthread_mutex_unlock(&pools.mutex);
	return r;
}

CUresult hook_mem_pool_trim_to(original_mem_pool_trim_to original, CUmemoryPool handle, size_t keep)
{
	pthread_mutex_lock(&pools.mutex);
	struct pool *p = handle ? find(handle) : NULL;
	CUresult r = original(handle, keep);
	if (p)
		settle(p);
	pthread_mutex_unlock(&pools.mutex);
	return r;
}
