/* SPDX-License-Identifier: Apache-2.0 */
/* wrap_pool.c: stream-ordered memory (see pools.h). */
#include "context/capture.h"
#include "context/current.h"
#include "driver/resolve.h"
#include "memory/account.h"
#include "memory/release.h"
#include "memory/overhead.h"
#include "memory/pools.h"
#include "model/location.h"
#include "settings/settings.h"
#include "shm/region.h"

struct request {
	CUdeviceptr *pointer;
	size_t bytes;
	CUmemoryPool pool;
	CUstream stream;
	/* exactly one is set */
	original_mem_alloc_async alloc;
	original_mem_alloc_from_pool from_pool;
};

static CUresult call_driver(const struct request *q)
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

/*
 * Whether the stream records into a graph, or what else there is to say of it when the driver does
 * not.
 */
static int is_recording(CUstream stream, int unknown)
{
	int status = 0;
	fn_cuStreamIsCapturing ask = ORIGINAL(cuStreamIsCapturing);
	return ask && ask(stream, &status) == CUDA_SUCCESS ? status != 0 : unknown;
}

/* Waits for the stream unless it is recording. Waiting must not spoil what other streams record. */
static void wait_for_stream(CUstream stream)
{
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	fn_cuStreamSynchronize synchronize = ORIGINAL(cuStreamSynchronize);
	fn_cuThreadExchangeStreamCaptureMode exchange = ORIGINAL(cuThreadExchangeStreamCaptureMode);
	if (!synchronize || is_recording(stream, 1) ||
	    (exchange && exchange(&mode) != CUDA_SUCCESS))
		return;
	synchronize(stream);
	if (exchange)
		exchange(&mode);
}

/*
 * The pool took more than was reserved and more than is left: give the allocation back.
 * A pool can be trimmed of it only when the stream has come to the freeing, which may take another
 * thread to do something: nothing is held meanwhile.
 */
static CUresult undo_allocation(struct pool_alloc *a, CUmemoryPool handle, const struct request *q,
				uint64_t over)
{
	fn_cuMemFreeAsync release = ORIGINAL(cuMemFreeAsync);
	fn_cuMemPoolTrimTo trim = ORIGINAL(cuMemPoolTrimTo);
	if (release)
		release(*q->pointer, stream_of(q));
	wait_for_stream(stream_of(q));
	if (trim)
		trim(handle, 0);
	pool_alloc_undone(a, over);
	return account_refuse(a->device, q->bytes);
}

static CUresult allocate_from_pool(const struct request *q, CUmemoryPool handle, int device)
{
	struct pool_alloc a;
	switch (pool_alloc_begin(&a, handle, device, q->bytes)) {
	case POOL_GO: break;
	case POOL_FREE: return call_driver(q);
	case POOL_CLOSED: return CUDA_ERROR_NOT_PERMITTED;
	case POOL_REFUSED: return account_refuse(a.device, q->bytes);
	}
	struct capture_view before;
	region_add_in_flight(a.device, 1);
	capture_watch(&before);
	CUresult r = call_driver(q);
	if (r == CUDA_SUCCESS && capture_may_have_recorded(&before, stream_of(q)))
		pool_doubt(a.pool);
	uint64_t over = pool_alloc_end(&a, r, r == CUDA_SUCCESS ? *q->pointer : 0);
	if (over)
		r = undo_allocation(&a, handle, q, over);
	region_add_in_flight(a.device, -1);
	return r;
}

/* The device and the context of a stream, which need not be the current ones. */
static CUresult device_of(CUstream stream, CUdevice *out, CUcontext *context)
{
	fn_cuCtxGetDevice device = ORIGINAL(cuCtxGetDevice);
	if (!device)
		return CUDA_ERROR_NOT_SUPPORTED;
	*context = current_stream_context(stream);
	int entered = current_push(*context);
	CUresult r = device(out);
	current_pop(entered);
	return r;
}

/* The pool a request goes to: the named one, else the current one of the stream's device. */
static CUmemoryPool pool_of_request(const struct request *q, CUdevice ordinal)
{
	CUmemoryPool pool = NULL;
	fn_cuDeviceGetMemPool of_device = ORIGINAL(cuDeviceGetMemPool);
	if (q->from_pool)
		return q->pool;
	return of_device && of_device(&pool, ordinal) == CUDA_SUCCESS ? pool : NULL;
}

/*
 * A place as the driver names it. Managed memory without one is its user's, as by
 * cuMemAllocManaged.
 */
static int home_of(CUmemLocation where, int managed)
{
	CUdevice device;
	enum location_kind kind = location_kind_of(where, &device);
	if (kind == LOCATION_DEVICE)
		return settings_device(device) < 0 ? POOL_NOT_IN_LIMITS : settings_device(device);
	return managed || kind == LOCATION_UNKNOWN ? POOL_WHERE_USED : POOL_IN_HOST;
}

/* The device whose default or current pool this is; -1: none. */
static CUdevice owner_of(CUmemoryPool pool)
{
	int count = 0;
	CUmemoryPool first, now;
	fn_cuDeviceGetCount devices = ORIGINAL(cuDeviceGetCount);
	fn_cuDeviceGetDefaultMemPool standard = ORIGINAL(cuDeviceGetDefaultMemPool);
	fn_cuDeviceGetMemPool current = ORIGINAL(cuDeviceGetMemPool);
	if (!devices || !standard || !current || devices(&count) != CUDA_SUCCESS)
		return -1;
	for (CUdevice d = 0; d < count; d++)
		if ((standard(&first, d) == CUDA_SUCCESS && first == pool) ||
		    (current(&now, d) == CUDA_SUCCESS && now == pool))
			return d;
	return -1;
}

/*
 * Finds out where a pool is that was not seen to be made: drivers since CUDA 13 say it, of others
 * only the pools of devices can be told. What is left is imported ones, of which the driver refuses
 * to allocate: who made them pays for them.
 */
static void find_home(CUmemoryPool pool)
{
	CUmemLocation where = {CU_MEM_LOCATION_TYPE_NONE, 0};
	int kind = CU_MEM_ALLOCATION_TYPE_PINNED;
	fn_cuMemPoolGetAttribute get = ORIGINAL(cuMemPoolGetAttribute);
	int told = get && get(pool, CU_MEMPOOL_ATTR_LOCATION_TYPE, &where.type) == CUDA_SUCCESS &&
		   get(pool, CU_MEMPOOL_ATTR_LOCATION_ID, &where.id) == CUDA_SUCCESS;
	if (told && get(pool, CU_MEMPOOL_ATTR_ALLOCATION_TYPE, &kind) != CUDA_SUCCESS)
		kind = CU_MEM_ALLOCATION_TYPE_PINNED;
	CUdevice owner = told ? -1 : owner_of(pool);
	if (owner >= 0)
		where = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, owner};
	if (told || owner >= 0)
		pool_found(pool, home_of(where, kind == CU_MEM_ALLOCATION_TYPE_MANAGED),
			   kind == CU_MEM_ALLOCATION_TYPE_MANAGED);
}

static CUresult allocate_if_admitted(const struct request *q)
{
	CUdevice ordinal;
	CUcontext context;
	enum gate gate = settings_gate();
	if (gate == GATE_CLOSED)
		return CUDA_ERROR_NOT_PERMITTED;
	if (gate == GATE_OPEN || !q->bytes)
		return call_driver(q); /* not limited, or for the driver to refuse */
	CUresult found = device_of(q->stream, &ordinal, &context);
	if (found != CUDA_SUCCESS)
		return found; /* another thread may bring the context back: see account.c */
	int device = settings_device(ordinal); /* the stream's; the pool may be of another */
	CUmemoryPool handle = pool_of_request(q, ordinal);
	if (device == -1 && !q->from_pool)
		return CUDA_ERROR_NOT_PERMITTED;
	if (device == -2 || !handle)
		return call_driver(q);
	if (capture_hold(stream_of(q))) { /* it is taken when the graph is launched */
		CUresult r = call_driver(q);
		capture_release();
		return r;
	}
	if (device >= 0)
		overhead_note_context(device, context);
	if (q->from_pool && !pool_is_known(handle))
		find_home(handle);
	return allocate_from_pool(q, handle, device);
}

CUresult hook_mem_alloc_async(original_mem_alloc_async original, CUdeviceptr *pointer, size_t bytes,
			      CUstream stream)
{
	return allocate_if_admitted(&(struct request){
		.pointer = pointer, .bytes = bytes, .stream = stream, .alloc = original});
}

CUresult hook_mem_alloc_from_pool(original_mem_alloc_from_pool original, CUdeviceptr *pointer,
				  size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return allocate_if_admitted(
		&(struct request){pointer, bytes, pool, stream, .from_pool = original});
}

CUresult hook_mem_free_async(original_mem_free_async original, CUdeviceptr pointer, CUstream stream)
{
	struct address_release f;
	struct capture_view before;
	int per_thread = !stream && original == ORIGINAL(cuMemFreeAsync_ptsz);
	CUstream at = per_thread ? CU_STREAM_PER_THREAD : stream;
	if (capture_is_any_open() && capture_hold(at)) { /* it is freed when the graph runs */
		CUresult r = original(pointer, stream);
		capture_release();
		return r;
	}
	capture_watch(&before);
	release_address_begin(&f, pointer);
	CUresult r = original(pointer, stream);
	if (r == CUDA_SUCCESS && capture_may_have_recorded(&before, at))
		return release_address_doubt(&f);
	return release_address_end(&f, r);
}

CUresult hook_mem_pool_create(original_mem_pool_create original, CUmemoryPool *pool,
			      const CUmemPoolProps *props)
{
	CUresult r = original(pool, props);
	if (r != CUDA_SUCCESS || settings_gate() != GATE_LIMITED)
		return r;
	int managed = props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
	pool_made(*pool, home_of(props->location, managed), managed);
	return r;
}

/*
 * Memory of a destroyed pool that is still in use stays with the driver until it is freed; so does
 * its charge.
 */
CUresult hook_mem_pool_destroy(original_mem_pool_destroy original, CUmemoryPool handle)
{
	struct pool *p = pool_call_begin(handle, 1);
	CUresult r = original(handle);
	if (p)
		pool_call_end(p, 1, r == CUDA_SUCCESS);
	return r;
}

CUresult hook_mem_pool_trim_to(original_mem_pool_trim_to original, CUmemoryPool handle, size_t keep)
{
	struct pool *p = pool_call_begin(handle, 0);
	CUresult r = original(handle, keep);
	if (p)
		pool_call_end(p, 0, 0);
	return r;
}
