/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/sparse.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "memory/handles.h"
#include "model/table.h"

#define BUCKETS 64
/* Level of a tail of small mipmap levels, whose offset and size are in bytes. */
#define TAIL UINT32_MAX

/* A part of an array. */
struct part {
	uint64_t array;
	uint32_t level, layer;
	uint64_t at[3], size[3];
};

struct tile {
	struct part part;
	uint64_t handle;
	struct tile *next;
};

static struct {
	pthread_mutex_t mutex; /* before the region's */
	unsigned count;        /* read without the mutex, so that other arrays cost nothing */
	struct tile *bucket[BUCKETS]; /* by array */
} sparse = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static struct tile **bucket_of(uint64_t array)
{
	return &sparse.bucket[array * 0x9e3779b97f4a7c15ULL >> 58]; /* the top 6 bits */
}

static struct part part_of(const CUarrayMapInfo *m)
{
	int plain = m->resourceType == CU_RESOURCE_TYPE_ARRAY;
	struct part p = {.array = plain ? (uintptr_t)m->resource.array
					: (uintptr_t)m->resource.mipmap};
	if (m->subresourceType == CU_ARRAY_SPARSE_SUBRESOURCE_TYPE_MIPTAIL) {
		p.level = TAIL;
		p.layer = m->subresource.miptail.layer;
		p.at[0] = m->subresource.miptail.offset;
		p.size[0] = m->subresource.miptail.size;
		return p;
	}
	p.level = m->subresource.sparseLevel.level;
	p.layer = m->subresource.sparseLevel.layer;
	p.at[0] = m->subresource.sparseLevel.offsetX;
	p.at[1] = m->subresource.sparseLevel.offsetY;
	p.at[2] = m->subresource.sparseLevel.offsetZ;
	p.size[0] = m->subresource.sparseLevel.extentWidth;
	p.size[1] = m->subresource.sparseLevel.extentHeight;
	p.size[2] = m->subresource.sparseLevel.extentDepth;
	return p;
}

/* Whether all of `inner` lies in `outer`. */
static int covers(const struct part *outer, const struct part *inner)
{
	if (outer->array != inner->array || outer->level != inner->level ||
	    outer->layer != inner->layer)
		return 0;
	for (int i = 0; i < 3; i++)
		if (inner->at[i] < outer->at[i] ||
		    inner->at[i] + inner->size[i] > outer->at[i] + outer->size[i])
			return 0;
	return 1;
}

/* Unmaps what lies wholly in a part (needs the mutex). */
static void remove_within(const struct part *p)
{
	for (struct tile **at = bucket_of(p->array); *at;) {
		struct tile *t = *at;
		if (!covers(p, &t->part)) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		handle_drop(t->handle);
		free(t);
		__atomic_sub_fetch(&sparse.count, 1, __ATOMIC_RELAXED);
	}
}

static void put_tile(struct tile *t)
{
	struct tile **at = bucket_of(t->part.array);
	t->next = *at;
	*at = t;
	__atomic_add_fetch(&sparse.count, 1, __ATOMIC_RELAXED);
}

/*
 * Takes a use of a handle of ours for an entry that maps. NULL: it is none, or there is no memory
 * for it: then it stays charged.
 */
static struct tile *make_tile(const CUarrayMapInfo *m)
{
	if (m->memOperationType != CU_MEM_OPERATION_TYPE_MAP || !handle_use(m->memHandle.memHandle))
		return NULL;
	struct tile *t = malloc(sizeof *t);
	if (t)
		*t = (struct tile){.part = part_of(m), .handle = m->memHandle.memHandle};
	return t;
}

/* Books an entry that the driver has carried out (needs the mutex), in place of what was there. */
static void book_entry(const CUarrayMapInfo *m, struct tile *t)
{
	struct part p = part_of(m);
	remove_within(&p);
	if (t)
		put_tile(t);
}

struct tile **sparse_map_begin(const CUarrayMapInfo *list, unsigned int count)
{
	struct tile **made = calloc(count, sizeof(struct tile *));
	/* Before the call: a release may run beside it. */
	for (unsigned int i = 0; made && i < count; i++)
		made[i] = make_tile(&list[i]);
	return made;
}

CUresult sparse_map_end(struct tile **made, const CUarrayMapInfo *list, unsigned int count,
			CUresult result)
{
	pthread_mutex_lock(&sparse.mutex);
	for (unsigned int i = 0; i < count; i++) {
		if (result == CUDA_SUCCESS) {
			book_entry(&list[i], made[i]);
		} else if (made[i]) {
			handle_drop(made[i]->handle);
			free(made[i]);
		}
	}
	pthread_mutex_unlock(&sparse.mutex);
	free(made);
	return result;
}

struct tile *sparse_take(uint64_t array)
{
	struct tile *list = NULL;
	if (!__atomic_load_n(&sparse.count, __ATOMIC_RELAXED))
		return NULL;
	pthread_mutex_lock(&sparse.mutex);
	for (struct tile **at = bucket_of(array); *at;) {
		struct tile *t = *at;
		if (t->part.array != array) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		t->next = list;
		list = t;
		__atomic_sub_fetch(&sparse.count, 1, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&sparse.mutex);
	return list;
}

void sparse_settle(struct tile *list, int gone)
{
	for (struct tile *next; list; list = next) {
		next = list->next;
		if (gone) {
			handle_drop(list->handle);
			free(list);
			continue;
		}
		pthread_mutex_lock(&sparse.mutex);
		put_tile(list);
		pthread_mutex_unlock(&sparse.mutex);
	}
}

void sparse_after_fork(void)
{
	memset(&sparse, 0, sizeof sparse); /* what it held is the parent's */
	pthread_mutex_init(&sparse.mutex, NULL); /* another thread of the parent may have held it */
}
