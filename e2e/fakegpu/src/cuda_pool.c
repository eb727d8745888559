/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_pool.c: stream-ordered memory. A pool reserves pieces of 32 MiB as its
 * allocations need them and keeps what is freed until the next synchronisation: then it
 * keeps only up to its release threshold. What is freed, in stream order or not, can be
 * trimmed only after that, too. (Measured: driver 580.159.04 on an H200.)
 */
#include "cuda_exports.h"
#include "cuda_graph.h"
#include "cuda_work.h"

#include <stdlib.h>

#define GRANULE (32ULL << 20)

struct CUmemPoolHandle_st {
	int ordinal, is_default, alive; /* ordinal -1: of the host, or managed */
	uint64_t reserved, used, threshold, reserved_high, used_high;
	uint64_t pending; /* freed, and the stream is not known to have come so far */
	struct CUmemPoolHandle_st *next;
};

struct piece {
	CUdeviceptr at;
	uint64_t size;
	struct CUmemPoolHandle_st *pool;
	struct piece *next;
};

static struct CUmemPoolHandle_st defaults[FG_MAX_DEVICES]; /* under fake.mutex, like all below */
static struct CUmemPoolHandle_st *current[FG_MAX_DEVICES];
static struct CUmemPoolHandle_st *created;
static struct piece *pieces;
static uint64_t next_address = 0x780000000000ULL;

static struct CUmemPoolHandle_st *default_pool(int ordinal)
{
	struct CUmemPoolHandle_st *p = &defaults[ordinal];
	if (!p->alive)
		*p = (struct CUmemPoolHandle_st){.ordinal = ordinal, .is_default = 1, .alive = 1};
	return p;
}

static struct CUmemPoolHandle_st *current_pool(int ordinal)
{
	if (!current[ordinal])
		current[ordinal] = default_pool(ordinal);
	return current[ordinal];
}

static int known(const struct CUmemPoolHandle_st *pool)
{
	for (int i = 0; i < fake.count; i++)
		if (pool == &defaults[i])
			return pool->alive;
	for (struct CUmemPoolHandle_st *p = created; p; p = p->next)
		if (p == pool)
			return 1;
	return 0;
}

static uint64_t granules(uint64_t bytes)
{
	const char *other = getenv("FAKEGPU_POOL"); /* MiB, of a driver that does it in another way */
	uint64_t granule = other ? strtoull(other, NULL, 10) << 20 : GRANULE;
	return (bytes + granule - 1) / granule * granule;
}

static void trim(struct CUmemPoolHandle_st *p, uint64_t keep)
{
	uint64_t needed = p->used + p->pending;
	keep = keep < p->reserved ? keep : p->reserved; /* the threshold may be any number */
	uint64_t floor = granules(needed > keep ? needed : keep);
	if (p->reserved > floor) {
		if (p->ordinal >= 0)
			fg_give(p->ordinal, p->reserved - floor);
		p->reserved = floor;
	}
}

static CUresult from_pool(struct CUmemPoolHandle_st *p, CUdeviceptr *out, uint64_t size)
{
	size = (size + 511) / 512 * 512;
	CUresult r = CUDA_SUCCESS;
	if (p->used + size > p->reserved) {
		uint64_t grow = granules(p->used + size) - p->reserved;
		r = p->ordinal < 0 ? CUDA_SUCCESS : fg_take(p->ordinal, grow);
		if (r == CUDA_SUCCESS)
			p->reserved += grow;
	}
	if (r != CUDA_SUCCESS)
		return r;
	struct piece *k = calloc(1, sizeof *k);
	*k = (struct piece){.at = next_address, .size = size, .pool = p, .next = pieces};
	pieces = k;
	next_address += fg_pages(size) + FG_PAGE;
	p->used += size;
	if (p->pending > p->reserved - p->used)
		p->pending = p->reserved - p->used; /* it was used again */
	p->used_high = p->used > p->used_high ? p->used : p->used_high;
	p->reserved_high = p->reserved > p->reserved_high ? p->reserved : p->reserved_high;
	*out = k->at;
	return CUDA_SUCCESS;
}

static CUresult allocate(const char *function, CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	int ordinal = stream > (CUstream)2 ? stream->ordinal : fg_current();
	if (ordinal < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!out || !bytes || bytes > 1ULL << 46)
		return bytes > 1ULL << 46 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.mutex);
	CUresult r = fg_injected(function);
	struct CUgraph_st *graph = fg_recorded(stream);
	if (r == CUDA_SUCCESS && graph) { /* recorded: no memory yet */
		int home = pool ? pool->ordinal : ordinal;
		CUDA_MEM_ALLOC_NODE_PARAMS node = {.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, home < 0 ? 0 : home}, .bytesize = bytes};
		*out = fg_graph_add_alloc(graph, &node, fg_graph_last(graph))->at;
		pthread_mutex_unlock(&fake.mutex);
		return r;
	}
	if (r == CUDA_SUCCESS && pool && !known(pool))
		r = CUDA_ERROR_INVALID_VALUE;
	if (r == CUDA_SUCCESS)
		r = from_pool(pool ? pool : current_pool(ordinal), out, bytes);
	pthread_mutex_unlock(&fake.mutex);
	return r;
}

CUresult cuMemAllocAsync(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
	return allocate("cuMemAllocAsync", pointer, bytes, NULL, stream);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUstream stream)
{
	return allocate("cuMemAllocAsync", pointer, bytes, NULL, fg_per_thread(stream));
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return pool ? allocate("cuMemAllocFromPoolAsync", pointer, bytes, pool, stream) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *pointer, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return cuMemAllocFromPoolAsync(pointer, bytes, pool, fg_per_thread(stream));
}

int fg_pool_free(CUdeviceptr pointer)
{
	pthread_mutex_lock(&fake.mutex);
	struct piece **at = &pieces;
	while (*at && (*at)->at != pointer)
		at = &(*at)->next;
	struct piece *k = *at;
	if (k) {
		*at = k->next;
		k->pool->used -= k->size;
		k->pool->pending += k->size;
		if (!k->pool->alive) {
			k->pool->pending = 0; /* a destroyed pool is not tracked further */
			trim(k->pool, 0);
		}
		free(k);
	}
	pthread_mutex_unlock(&fake.mutex);
	return k != NULL;
}

/* Plain memory may be freed this way, too, as pooled memory may be by cuMemFree. */
CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream stream)
{
	if (fg_ready() != CUDA_SUCCESS || !fg_recorded(stream))
		return cuMemFree_v2(pointer);
	pthread_mutex_lock(&fake.mutex);
	struct CUgraph_st *graph = fg_recorded(stream); /* another thread may have ended the capture */
	if (graph)
		fg_graph_add_free(graph, pointer);
	pthread_mutex_unlock(&fake.mutex);
	return graph ? CUDA_SUCCESS : cuMemFree_v2(pointer);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
	return cuMemFreeAsync(pointer, fg_per_thread(stream));
}

void fg_drain_pools(int ordinal)
{
	pthread_mutex_lock(&fake.mutex);
	defaults[ordinal].pending = 0;
	if (defaults[ordinal].alive)
		trim(&defaults[ordinal], defaults[ordinal].threshold);
	for (struct CUmemPoolHandle_st *p = created; p; p = p->next)
		if (p->ordinal == ordinal || p->ordinal < 0) {
			p->pending = 0;
			trim(p, p->threshold);
		}
	pthread_mutex_unlock(&fake.mutex);
}

static CUresult device_pool(CUmemoryPool *pool, CUdevice device, struct CUmemPoolHandle_st *(*get)(int))
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!fg_gpu(device))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&fake.mutex);
	*pool = get(device);
	pthread_mutex_unlock(&fake.mutex);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	return device_pool(pool, device, default_pool);
}

CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
	return device_pool(pool, device, current_pool);
}

CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!fg_gpu(device))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&fake.mutex);
	int ok = known(pool) && pool->ordinal == device;
	if (ok)
		current[device] = pool;
	pthread_mutex_unlock(&fake.mutex);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	int host = props && props->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && fg_generation >= 12020;
	/* Managed memory is not put anywhere before it is touched, which nobody does here: it is reserved and takes nothing. */
	host |= props && props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED && props->location.type == CU_MEM_LOCATION_TYPE_NONE && fg_generation >= 13000;
	int ordinal = host || !props ? -1 : fg_ordinal_of(props->location);
	if (!pool || !props || (!host && !fg_gpu(ordinal)))
		return CUDA_ERROR_INVALID_VALUE;
	struct CUmemPoolHandle_st *p = calloc(1, sizeof *p);
	*p = (struct CUmemPoolHandle_st){.ordinal = ordinal, .alive = 1};
	pthread_mutex_lock(&fake.mutex);
	p->next = created;
	created = p;
	pthread_mutex_unlock(&fake.mutex);
	*pool = p;
	return CUDA_SUCCESS;
}

/* Memory still in use goes back when it is freed; the small record stays. */
CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	pthread_mutex_lock(&fake.mutex);
	struct CUmemPoolHandle_st **at = &created;
	while (*at && *at != pool)
		at = &(*at)->next;
	int found = *at != NULL;
	if (found) {
		*at = pool->next;
		pool->alive = 0;
		pool->pending = 0; /* not tracked further */
		trim(pool, 0);
		if (pool->ordinal >= 0 && current[pool->ordinal] == pool)
			current[pool->ordinal] = NULL;
	}
	pthread_mutex_unlock(&fake.mutex);
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	pthread_mutex_lock(&fake.mutex);
	int ok = known(pool);
	if (ok)
		trim(pool, keep);
	pthread_mutex_unlock(&fake.mutex);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static uint64_t *attribute_of(struct CUmemPoolHandle_st *p, int attribute)
{
	switch (attribute) {
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: return &p->threshold;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: return &p->reserved;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: return &p->reserved_high;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: return &p->used;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return &p->used_high;
	default: return NULL;
	}
}

static CUresult attribute_access(CUmemoryPool pool, int attribute, void *value, int set)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	pthread_mutex_lock(&fake.mutex);
	uint64_t *field = value && known(pool) ? attribute_of(pool, attribute) : NULL;
	if (set && attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		field = NULL;
	if (field && set)
		*field = *(uint64_t *)value;
	else if (field)
		*(uint64_t *)value = *field;
	pthread_mutex_unlock(&fake.mutex);
	return field ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
	return attribute_access(pool, attribute, value, 1);
}

CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
	return attribute_access(pool, attribute, value, 0);
}
