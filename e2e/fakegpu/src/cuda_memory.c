/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_memory.c: plain, pitched and managed memory.
 *
 * The page rule: an allocation above 1 MiB gets pages of 2 MiB of its own; smaller ones of one
 * context, managed or not, are packed into pages in the order they come, and a page goes back when
 * the last allocation in it is freed. Addresses are never used twice. Managed memory that the
 * device has no room for lies in the host, unless FAKEGPU_MANAGED=device. With FAKEGPU_PACKING=none
 * each small one gets a page of its own, as by a driver that packs in another way.
 */
#include "cuda_exports.h"
#include "cuda_fake.h"
#include "cuda_mps.h"
#include "mig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096
#define ALIGN 512
#define SMALL (1ULL << 20)
#define PITCH_ALIGN 512

struct chunk {
	uint64_t base, used;
	int live, managed;
	const struct CUctx_st *context;
	struct chunk *next; /* open ones */
};

struct block {
	CUdeviceptr at;
	uint64_t size, charged;
	int ordinal, managed;
	const struct CUctx_st *context;
	struct chunk *chunk; /* NULL for own pages */
	struct block *next;
};

static struct block *buckets[BUCKETS];          /* under fake.mutex, like all below */
static struct chunk *open_chunks; /* where small blocks go next: at most one per context and kind */
static uint64_t next_address = 0x700000000000ULL;
static uint32_t next_address_v1 = 0x10000000u;
static struct {
	char function[64];
	long nth, code, seen;
} failure = {.nth = -1};

CUresult fg_injected(const char *function)
{
	if (failure.nth < 0) {
		const char *env = getenv("FAKEGPU_FAIL");
		failure.nth = 0;
		if (env && sscanf(env, "%63[^:]:%ld:%ld", failure.function, &failure.nth, &failure.code) != 3)
			fprintf(stderr, "fake libcuda: FAKEGPU_FAIL wants <function>:<n>:<code>\n");
	}
	if (failure.nth > 0 && !strcmp(failure.function, function) && ++failure.seen == failure.nth)
		return (CUresult)failure.code;
	return CUDA_SUCCESS;
}

CUresult fg_take(int ordinal, uint64_t bytes)
{
	const struct fg_gpu *g = fake.gpu[ordinal];
	if (fg_watch_take(ordinal, bytes))
		return CUDA_ERROR_OUT_OF_MEMORY;
	fg_lock();
	uint64_t used = fg_used_of(g);
	CUresult r = bytes <= g->memory && used <= g->memory - bytes ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	if (!fg_mps_admits(ordinal, fg_state()->process[fake.slot].used[g->minor], bytes))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	if (fg_state()->device[g->minor].lost || (g->gi_serial && !fg_gi_by_serial(g->minor, g->gi_serial)))
		r = CUDA_ERROR_UNKNOWN;
	if (r == CUDA_SUCCESS) {
		fg_state()->process[fake.slot].used[g->minor] += bytes;
		fg_note_use(g->minor);
		fg_watch_taken(ordinal, bytes);
	}
	fg_unlock();
	return r;
}

void fg_give(int ordinal, uint64_t bytes)
{
	fg_lock();
	fg_state()->process[fake.slot].used[fake.gpu[ordinal]->minor] -= bytes;
	fg_watch_given(ordinal, bytes);
	fg_unlock();
}

int fg_shares_with_host(void)
{
	const char *managed = getenv("FAKEGPU_MANAGED");
	return !managed || strcmp(managed, "device");
}

static struct block **find(CUdeviceptr at)
{
	struct block **p = &buckets[(at / ALIGN) % BUCKETS];
	while (*p && (*p)->at != at)
		p = &(*p)->next;
	return p;
}

static void insert(struct block *b)
{
	struct block **p = &buckets[(b->at / ALIGN) % BUCKETS];
	b->next = *p;
	*p = b;
}

static uint64_t take_address(uint64_t pages)
{
	uint64_t at = next_address;
	next_address += pages + FG_PAGE; /* a hole, so that overruns hit nothing */
	return at;
}

static struct chunk **find_open(const struct block *b)
{
	struct chunk **p = &open_chunks;
	while (*p && ((*p)->context != b->context || (*p)->managed != b->managed))
		p = &(*p)->next;
	return p;
}

static int packs(void)
{
	static int known; /* under fake.mutex: 1 + the answer */
	if (!known)
		known = 1 + !getenv("FAKEGPU_PACKING");
	return known - 1;
}

static CUresult place_small(struct block *b)
{
	uint64_t need = (b->size + ALIGN - 1) / ALIGN * ALIGN;
	struct chunk **open = find_open(b), *c = *open;
	if (!c || c->used + need > FG_PAGE || !packs()) {
		CUresult r = fg_take(b->ordinal, FG_PAGE);
		if (r != CUDA_SUCCESS)
			return r;
		struct chunk *next = c ? c->next : NULL; /* the full one is kept by its blocks */
		c = calloc(1, sizeof *c);
		*c = (struct chunk){.base = take_address(FG_PAGE), .context = b->context, .managed = b->managed, .next = next};
		*open = c;
	}
	b->chunk = c;
	b->at = c->base + c->used;
	c->used += need;
	c->live++;
	return CUDA_SUCCESS;
}

static CUresult place(struct block *b, int v1)
{
	if (b->size <= SMALL && !v1)
		return place_small(b);
	b->charged = fg_pages(b->size);
	if (v1 && b->charged > 0xf0000000u - next_address_v1)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult r = fg_take(b->ordinal, b->charged);
	if (r == CUDA_ERROR_OUT_OF_MEMORY && b->managed && fg_shares_with_host())
		b->charged = 0, r = CUDA_SUCCESS;
	if (r != CUDA_SUCCESS)
		return r;
	if (v1) {
		b->at = next_address_v1;
		next_address_v1 += (uint32_t)b->charged;
	} else {
		b->at = take_address(fg_pages(b->size));
	}
	return CUDA_SUCCESS;
}

static CUresult allocate(const char *function, CUdeviceptr *out, uint64_t size, int v1)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	const struct CUctx_st *context = fg_context();
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > 1ULL << 46)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct block *b = calloc(1, sizeof *b);
	*b = (struct block){.size = size, .ordinal = context->ordinal, .context = context,
			    .managed = !strcmp(function, "cuMemAllocManaged")};
	pthread_mutex_lock(&fake.mutex);
	CUresult r = fg_injected(function);
	if (r == CUDA_SUCCESS && !fg_context_lives(context))
		r = CUDA_ERROR_INVALID_CONTEXT;
	if (r == CUDA_SUCCESS)
		r = place(b, v1);
	if (r == CUDA_SUCCESS) {
		*out = b->at;
		insert(b);
	}
	pthread_mutex_unlock(&fake.mutex);
	if (r != CUDA_SUCCESS)
		free(b);
	return r;
}

/* Gives a removed block's memory back (under fake.mutex). */
static void give_back(struct block *b)
{
	if (!b->chunk) {
		fg_give(b->ordinal, b->charged);
	} else if (--b->chunk->live == 0) {
		fg_give(b->ordinal, FG_PAGE);
		struct chunk **open = find_open(b);
		if (*open == b->chunk)
			*open = b->chunk->next;
		free(b->chunk);
	}
	free(b);
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes)
{
	return allocate("cuMemAlloc", pointer, bytes, 0);
}

CUresult cuMemAlloc(CUdeviceptr_v1 *pointer, unsigned int bytes)
{
	CUdeviceptr at;
	CUresult r = allocate("cuMemAlloc", pointer ? &at : NULL, bytes, 1);
	if (r == CUDA_SUCCESS)
		*pointer = (CUdeviceptr_v1)at;
	return r;
}

CUresult cuMemAllocManaged(CUdeviceptr *pointer, size_t bytes, unsigned int flags)
{
	if (flags != 1 && flags != 2) /* CU_MEM_ATTACH_GLOBAL, _HOST */
		return CUDA_ERROR_INVALID_VALUE;
	return allocate("cuMemAllocManaged", pointer, bytes, 0);
}

static CUresult pitched(CUdeviceptr *at, size_t *pitch, size_t width, size_t height, unsigned element, int v1)
{
	if (!at || !pitch || !width || !height || (element != 4 && element != 8 && element != 16))
		return CUDA_ERROR_INVALID_VALUE;
	size_t p = (width + PITCH_ALIGN - 1) / PITCH_ALIGN * PITCH_ALIGN, total;
	if (p < width || __builtin_mul_overflow(p, height, &total))
		return CUDA_ERROR_INVALID_VALUE;
	CUresult r = allocate("cuMemAllocPitch", at, total, v1);
	if (r == CUDA_SUCCESS)
		*pitch = p;
	return r;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *pointer, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	return pitched(pointer, pitch, width, height, element, 0);
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *pointer, unsigned int *pitch, unsigned int width, unsigned int height,
			 unsigned int element)
{
	CUdeviceptr at;
	size_t wide;
	CUresult r = pitched(pointer ? &at : NULL, pitch ? &wide : NULL, width, height, element, 1);
	if (r == CUDA_SUCCESS) {
		*pointer = (CUdeviceptr_v1)at;
		*pitch = (unsigned int)wide;
	}
	return r;
}

CUresult cuMemFree_v2(CUdeviceptr pointer)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	if (!pointer)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&fake.mutex);
	struct block **p = find(pointer), *b = *p;
	if (b) {
		*p = b->next;
		give_back(b);
	}
	pthread_mutex_unlock(&fake.mutex);
	return b || fg_pool_free(pointer) || fg_graph_free(pointer) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemFree(CUdeviceptr_v1 pointer)
{
	return cuMemFree_v2(pointer);
}

void fg_memory_reset(const struct CUctx_st *context)
{
	pthread_mutex_lock(&fake.mutex);
	for (int i = 0; i < BUCKETS; i++)
		for (struct block **p = &buckets[i]; *p;) {
			struct block *b = *p;
			if (b->context != context) {
				p = &b->next;
				continue;
			}
			*p = b->next;
			give_back(b);
		}
	pthread_mutex_unlock(&fake.mutex);
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	int ordinal = fg_current();
	if (ordinal < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	const struct fg_gpu *g = fake.gpu[ordinal];
	fg_lock();
	uint64_t used = fg_used_of(g), own = fg_state()->process[fake.slot].used[g->minor];
	fg_unlock();
	if (free_bytes)
		*free_bytes = fg_mps_free(ordinal, own, used < g->memory ? g->memory - used : 0);
	if (total)
		*total = g->memory;
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(unsigned int *free_bytes, unsigned int *total)
{
	size_t f, t;
	CUresult r = cuMemGetInfo_v2(&f, &t);
	if (r == CUDA_SUCCESS && free_bytes)
		*free_bytes = f > 0xffffffffu ? 0xffffffffu : (unsigned int)f;
	if (r == CUDA_SUCCESS && total)
		*total = t > 0xffffffffu ? 0xffffffffu : (unsigned int)t;
	return r;
}

int fg_block(CUdeviceptr pointer, CUdeviceptr *base, uint64_t *size, int *managed)
{
	int found = 0;
	pthread_mutex_lock(&fake.mutex);
	for (int i = 0; i < BUCKETS; i++)
		for (struct block *b = buckets[i]; b; b = b->next)
			if (pointer >= b->at && pointer - b->at < b->size) {
				*base = b->at;
				*size = b->size;
				*managed = b->managed;
				found = 1;
			}
	pthread_mutex_unlock(&fake.mutex);
	return found;
}

CUresult cuMemsetD8_v2(CUdeviceptr pointer, unsigned char value, size_t bytes)
{
	CUdeviceptr base;
	uint64_t size;
	int managed;
	(void)value;
	if (fg_ready() != CUDA_SUCCESS)
		return fg_ready();
	return fg_block(pointer, &base, &size, &managed) && bytes <= size - (pointer - base) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemsetD8_v2_ptds(CUdeviceptr pointer, unsigned char value, size_t bytes)
{
	return cuMemsetD8_v2(pointer, value, bytes);
}
