/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool grows by whole granules of 32 MiB (driver 580 on an H200), so what it will have reserved
 * when a call has ended is known before: the bytes in use, rounded up. That is charged before the
 * driver is asked. A pool that grows by another granule teaches it; what it took beyond the limit
 * by then is given back.
 *
 * Several calls can be under way in one pool. Their bytes count as in use, so the charge covers
 * them all, and it does not fall below that while one is under way. So it is never less than what
 * the driver has reserved.
 *
 * Lock order: pools.mutex before the region's. No call of the driver that can wait is made under
 * it: an allocation waits for a place in its stream's queue, and giving one back waits for the
 * stream, which may need another thread.
 */
#include "memory/pools.h"

#include <pthread.h>
#include <stdlib.h>

#include "driver/resolve.h"
#include "memory/account.h"
#include "model/limit.h"
#include "settings/components.h"
#include "settings/settings.h"
#include "shm/region.h"

#define LARGEST (1ULL << 56)  /* larger requests count as this, so that sums do not overflow */
#define GRANULE (32ULL << 20) /* of a pool that has not taught another one */
#define PIECE 512             /* the driver gives out multiples of this */

struct pool {
	CUmemoryPool handle; /* NULL: destroyed, and still in use */
	int device;          /* index in the limits, or POOL_* */
	int managed;         /* the driver's figure may lack what lies in the host */
	int leaving;         /* calls that destroy it: the driver must not be asked about it */
	int calls;           /* under way: the record stays */
	int growing;         /* those of them that may make it grow */
	int doubtful;        /* `live` may hold what was recorded: see pool_doubt */
	uint64_t granule;
	uint64_t live;    /* bytes of allocations that were not freed, those under way included */
	uint64_t charged;
	uint64_t doomed;  /* grown beyond the limit, not charged, and about to be given back */
	uint64_t solid;   /* while some is: what the pool had before, which may be used */
	struct pool *next;
};

static struct {
	pthread_mutex_t mutex;
	struct pool *first;
} pools = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct pool *find_pool(CUmemoryPool handle)
{
	struct pool *p = pools.first;
	while (p && p->handle != handle)
		p = p->next;
	return p;
}

static struct pool *find_or_add_pool(CUmemoryPool handle, int device)
{
	struct pool *p = find_pool(handle);
	if (p || !(p = calloc(1, sizeof *p)))
		return p;
	*p = (struct pool){
		.handle = handle, .device = device, .granule = GRANULE, .next = pools.first};
	__atomic_store_n(&pools.first, p, __ATOMIC_RELAXED);
	return p;
}

/* What a pool has reserved when it has just grown for this much. */
static uint64_t round_to_granules(const struct pool *p, uint64_t bytes)
{
	return (bytes + p->granule - 1) & ~(p->granule - 1);
}

/* What the driver says of a pool in bytes; 0: it does not say. */
static int query_attribute(const struct pool *p, int attribute, uint64_t *bytes)
{
	fn_cuMemPoolGetAttribute get = ORIGINAL(cuMemPoolGetAttribute);
	return p->handle && !p->leaving && get &&
	       get(p->handle, attribute, bytes) == CUDA_SUCCESS;
}

/* Bytes that the driver has reserved for a pool. */
static uint64_t query_reserved(const struct pool *p)
{
	uint64_t bytes = 0;
	return query_attribute(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes) ? bytes : 0;
}

/* What is in use of a doubtful pool is what the driver says, when no call may make it more. */
static void learn_live(struct pool *p)
{
	uint64_t used;
	if (p->doubtful && !p->growing &&
	    query_attribute(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used))
		p->live = used;
}

/* Bytes that a pool has of its device, as far as that is known (needs the mutex). */
static uint64_t bytes_held(struct pool *p)
{
	if (!p->handle)
		return round_to_granules(p, p->live) < p->charged ? round_to_granules(p, p->live)
								  : p->charged;
	if (p->leaving)
		return p->charged;
	uint64_t bytes = query_reserved(p), unit = bytes & -bytes;
	uint64_t used = limit_round_to_pages(p->live);
	if (unit && unit < p->granule)
		p->granule = unit < PAGE_BYTES ? PAGE_BYTES : unit;
	return p->managed && used > bytes ? used : bytes;
}

/*
 * Charges what the pool holds now, and returns that (needs the mutex). Growth that nobody reserved
 * is for the calls under way to answer for when they end; without any it is charged whatever the
 * limit says, because the driver has it already.
 */
static uint64_t settle_pool(struct pool *p)
{
	if (p->device < 0)
		return 0;
	learn_live(p);
	uint64_t now = bytes_held(p), beyond = now > p->charged ? now - p->charged : 0;
	p->doomed = p->doomed < beyond ? p->doomed : beyond;
	uint64_t least = p->growing ? round_to_granules(p, p->live) : 0;
	uint64_t want = now - p->doomed > least ? now - p->doomed : least;
	if (want > p->charged && !p->growing) {
		region_force(p->device, want - p->charged);
		p->charged = want;
	} else if (want < p->charged) {
		region_release(p->device, p->charged - want);
		p->charged = want;
	}
	return now;
}

void pools_refresh(int device)
{
	pthread_mutex_lock(&pools.mutex);
	for (struct pool *p = pools.first; p; p = p->next)
		if (p->device == device)
			settle_pool(p);
	pthread_mutex_unlock(&pools.mutex);
}

/* The driver is asked only about pools that have something to give back. */
void pools_synchronised(void)
{
	if (!__atomic_load_n(&pools.first, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&pools.mutex);
	for (struct pool *p = pools.first; p; p = p->next)
		if (p->charged > round_to_granules(p, p->live))
			settle_pool(p);
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

/* Takes an allocation off what is in use. Of a doubtful pool it may not be in that. */
static void subtract_live(struct pool *p, uint64_t bytes)
{
	uint64_t used;
	if (p->doubtful && query_attribute(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used))
		return; /* settle_pool reads it */
	p->live -= bytes < p->live ? bytes : p->live;
}

void pool_doubt(struct pool *p)
{
	pthread_mutex_lock(&pools.mutex);
	p->doubtful = 1;
	pthread_mutex_unlock(&pools.mutex);
}

void pool_perhaps_freed(const struct table_entry *entry)
{
	struct pool *p = (struct pool *)(uintptr_t)entry->link;
	pthread_mutex_lock(&pools.mutex);
	p->doubtful = 1;
	settle_pool(p);
	pthread_mutex_unlock(&pools.mutex);
	if (table_put_back(entry)) /* else it may be freed once more */
		pool_freed(entry);
}

void pool_freed(const struct table_entry *entry)
{
	struct pool *p = (struct pool *)(uintptr_t)entry->link;
	pthread_mutex_lock(&pools.mutex);
	subtract_live(p, entry->size);
	settle_pool(p);
	forget_if_unused(p);
	pthread_mutex_unlock(&pools.mutex);
}

/* A call in the pool ends, and what it had to give back is given back (needs the mutex). */
static void end_call(struct pool *p, uint64_t given_back)
{
	p->doomed -= given_back < p->doomed ? given_back : p->doomed;
	p->calls--;
	settle_pool(p);
	forget_if_unused(p);
}

/*
 * Charges what the pool is going to have with `bytes` more (needs the mutex). 0, or -1. What is
 * about to be given back is not to be used again: it could not be given back then.
 */
static int reserve_growth(struct pool *p, uint64_t bytes, uint64_t *before)
{
	*before = settle_pool(p);
	uint64_t has = p->doomed ? p->solid : p->charged, live = p->live + bytes;
	uint64_t more = live > has ? round_to_granules(p, live) - has : 0;
	if (more && region_reserve(p->device, more, settings_memory_limit(p->device)))
		return -1;
	p->live = live;
	p->charged += more;
	p->growing++;
	return 0;
}

/*
 * Answers for growth that nobody had reserved (needs the mutex). The bytes of it that there is no
 * room for: they must go back.
 */
static uint64_t cover_growth(struct pool *p, const struct pool_alloc *a)
{
	uint64_t now = settle_pool(p), known = p->charged + p->doomed;
	uint64_t more = now > known ? now - known : 0;
	uint64_t grown = now > a->before ? now - a->before : 0, unit = now & -now;
	if (!more)
		return 0;
	if (grown > limit_round_to_pages(a->bytes) + p->granule && unit > p->granule)
		p->granule = unit;
	if (region_reserve(p->device, more, settings_memory_limit(p->device))) {
		p->solid = p->doomed && p->solid < a->before ? p->solid : a->before;
		p->doomed += more;
		return more;
	}
	p->charged += more;
	return 0;
}

/*
 * Takes room for an allocation; looks once more where there is none: streams may have synchronised.
 */
static int reserve_or_end_call(struct pool_alloc *a)
{
	pthread_mutex_lock(&pools.mutex);
	int refused = reserve_growth(a->pool, a->bytes, &a->before);
	pthread_mutex_unlock(&pools.mutex);
	if (!refused)
		return 0;
	components_refresh(a->device);
	pthread_mutex_lock(&pools.mutex);
	refused = reserve_growth(a->pool, a->bytes, &a->before);
	if (refused)
		end_call(a->pool, 0);
	pthread_mutex_unlock(&pools.mutex);
	return refused;
}

enum pool_answer pool_alloc_begin(struct pool_alloc *a, CUmemoryPool handle, int device,
				  uint64_t bytes)
{
	bytes = bytes < LARGEST ? (bytes + PIECE - 1) / PIECE * PIECE : LARGEST;
	*a = (struct pool_alloc){.device = device, .bytes = bytes};
	pthread_mutex_lock(&pools.mutex);
	struct pool *p = a->pool = find_or_add_pool(handle, device);
	if (p && p->device == POOL_WHERE_USED)
		p->device = device;
	if (p)
		a->device = p->device;
	int charged = a->device >= 0;
	if (p && charged)
		p->calls++;
	pthread_mutex_unlock(&pools.mutex);
	if (!charged)
		return a->device == POOL_IN_HOST ? POOL_FREE : POOL_CLOSED;
	return !p || reserve_or_end_call(a) ? POOL_REFUSED : POOL_GO;
}

uint64_t pool_alloc_end(struct pool_alloc *a, CUresult result, CUdeviceptr pointer)
{
	struct pool *p = a->pool;
	struct table_entry e = {
		.kind = TABLE_POOLED, .device = a->device, .size = a->bytes, .link = (uintptr_t)p};
	pthread_mutex_lock(&pools.mutex);
	uint64_t over = result == CUDA_SUCCESS ? cover_growth(p, a) : 0;
	if (result == CUDA_SUCCESS && !over)
		e.key = pointer;
	if (!e.key || table_add(&e))
		subtract_live(p, a->bytes);
	p->growing--;
	if (!over)
		end_call(p, 0);
	pthread_mutex_unlock(&pools.mutex);
	return over;
}

void pool_alloc_undone(struct pool_alloc *a, uint64_t over)
{
	pthread_mutex_lock(&pools.mutex);
	end_call(a->pool, over);
	pthread_mutex_unlock(&pools.mutex);
}

void pool_made(CUmemoryPool handle, int home, int managed)
{
	pthread_mutex_lock(&pools.mutex);
	struct pool *p = find_pool(handle);
	if (p) { /* its number is given again: the thread that destroyed it is about to say so */
		p->handle = NULL;
		settle_pool(p);
		forget_if_unused(p);
	}
	p = find_or_add_pool(handle, home);
	if (p)
		p->managed = managed;
	pthread_mutex_unlock(&pools.mutex);
}

void pool_found(CUmemoryPool handle, int home, int managed)
{
	pthread_mutex_lock(&pools.mutex);
	struct pool *p = find_pool(handle) ? NULL : find_or_add_pool(handle, home);
	if (p)
		p->managed = managed;
	pthread_mutex_unlock(&pools.mutex);
}

int pool_is_known(CUmemoryPool handle)
{
	pthread_mutex_lock(&pools.mutex);
	int known = find_pool(handle) != NULL;
	pthread_mutex_unlock(&pools.mutex);
	return known;
}

struct pool *pool_call_begin(CUmemoryPool handle, int leaving)
{
	pthread_mutex_lock(&pools.mutex);
	struct pool *p = handle ? find_pool(handle) : NULL;
	if (p) {
		p->calls++;
		p->leaving += leaving;
	}
	pthread_mutex_unlock(&pools.mutex);
	return p;
}

void pool_call_end(struct pool *p, int leaving, int destroyed)
{
	pthread_mutex_lock(&pools.mutex);
	p->leaving -= leaving;
	if (destroyed)
		p->handle = NULL;
	end_call(p, 0);
	pthread_mutex_unlock(&pools.mutex);
}

void pools_after_fork(void)
{
	pthread_mutex_init(&pools.mutex, NULL);
	pools.first = NULL;
}
