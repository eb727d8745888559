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
	struct physical *of;
	uint64_t call, since; /* numbers of the call that mapped it: its begin and its end */
	int lost;             /* its array was destroyed while the call was under way */
	struct tile *next;
};

static struct {
	pthread_mutex_t mutex; /* before those of handles.c */
	unsigned count;        /* read without the mutex, so that other arrays cost nothing */
	uint64_t numbers;      /* begins and ends of calls so far */
	struct sparse_call *calls;    /* under way */
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

/*
 * Unmaps what lies wholly in a part (needs the mutex). Of calls that meet nobody knows which the
 * driver carried out last: what one mapped stays charged until a later call unmaps it.
 */
static void remove_within(const struct part *p, const struct sparse_call *call)
{
	for (struct tile **at = bucket_of(p->array); *at;) {
		struct tile *t = *at;
		int before = t->since < call->number || t->call == call->number;
		if (!before || !covers(p, &t->part)) {
			at = &t->next;
			continue;
		}
		*at = t->next;
		handle_let_go(t->of);
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
 * Takes a use of memory of ours for an entry that maps. NULL: it is none, or there is no memory for
 * it: then it stays charged.
 */
static struct tile *make_tile(const CUarrayMapInfo *m)
{
	struct physical *p = m->memOperationType == CU_MEM_OPERATION_TYPE_MAP
				     ? handle_hold(m->memHandle.memHandle)
				     : NULL;
	struct tile *t = p ? malloc(sizeof *t) : NULL;
	if (t)
		*t = (struct tile){.part = part_of(m), .of = p};
	return t;
}

int sparse_map_begin(struct sparse_call *c, const CUarrayMapInfo *list, unsigned int count)
{
	*c = (struct sparse_call){.list = list, .count = count};
	c->made = calloc(count, sizeof(struct tile *));
	if (!c->made)
		return -1;
	/* Before the call: a release may run beside it. */
	for (unsigned int i = 0; i < count; i++)
		c->made[i] = make_tile(&list[i]);
	pthread_mutex_lock(&sparse.mutex);
	c->number = ++sparse.numbers;
	c->next = sparse.calls;
	sparse.calls = c;
	pthread_mutex_unlock(&sparse.mutex);
	return 0;
}

static void forget_call(const struct sparse_call *c)
{
	struct sparse_call **at = &sparse.calls;
	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
}

static void let_go_of_tile(struct tile *t)
{
	handle_let_go(t->of);
	free(t);
}

/* Books an entry that the driver has carried out (needs the mutex), in place of what was there. */
static void book_entry(const struct sparse_call *c, unsigned int i, uint64_t now)
{
	struct part p = part_of(&c->list[i]);
	struct tile *t = c->made[i];
	remove_within(&p, c);
	if (t && t->lost) {
		let_go_of_tile(t);
	} else if (t) {
		t->call = c->number;
		t->since = now;
		put_tile(t);
	}
}

void sparse_map_end(struct sparse_call *c, unsigned int done)
{
	pthread_mutex_lock(&sparse.mutex);
	uint64_t now = ++sparse.numbers;
	forget_call(c);
	for (unsigned int i = 0; i < c->count; i++)
		if (i < done)
			book_entry(c, i, now);
		else if (c->made[i])
			let_go_of_tile(c->made[i]);
	pthread_mutex_unlock(&sparse.mutex);
	free(c->made);
}

static struct tile *take_tiles(uint64_t array)
{
	struct tile *list = NULL;
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
	return list;
}

void sparse_destroy_begin(struct sparse_destruction *d, uint64_t array)
{
	*d = (struct sparse_destruction){.array = array};
	if (!__atomic_load_n(&sparse.count, __ATOMIC_RELAXED) &&
	    !__atomic_load_n(&sparse.calls, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&sparse.mutex);
	d->number = ++sparse.numbers;
	d->tiles = take_tiles(array);
	pthread_mutex_unlock(&sparse.mutex);
}

/* What calls have mapped that began before the array's end did went with it (needs the mutex). */
static void lose_tiles(const struct sparse_destruction *d)
{
	for (struct sparse_call *c = sparse.calls; c; c = c->next)
		for (unsigned int i = 0; c->number < d->number && i < c->count; i++)
			if (c->made[i] && c->made[i]->part.array == d->array)
				c->made[i]->lost = 1;
}

void sparse_destroy_end(struct sparse_destruction *d, int gone)
{
	if (!d->number)
		return;
	pthread_mutex_lock(&sparse.mutex);
	if (gone)
		lose_tiles(d);
	for (struct tile *next; d->tiles; d->tiles = next) {
		next = d->tiles->next;
		if (gone)
			let_go_of_tile(d->tiles);
		else
			put_tile(d->tiles);
	}
	pthread_mutex_unlock(&sparse.mutex);
}

void sparse_array_gone(uint64_t array)
{
	struct sparse_destruction d;
	sparse_destroy_begin(&d, array);
	sparse_destroy_end(&d, 1);
}

void sparse_after_fork(void)
{
	memset(&sparse, 0, sizeof sparse); /* what it held is the parent's */
	pthread_mutex_init(&sparse.mutex, NULL); /* another thread of the parent may have held it */
}
