/* SPDX-License-Identifier: Apache-2.0 */
#include "memory/handles.h"

#include <pthread.h>
#include <stdlib.h>

#include "driver/resolve.h"
#include "memory/account.h"
#include "settings/settings.h"
#include "shm/region.h"

/* Link of a handle that another process made, and pays for; its size here is 0. */
#define IMPORTED 1

/*
 * Where known handles are mapped: a binary tree by address that is a heap by a hash of it, so that
 * a range is cut out of it in a time that depends on the mappings in the range, and not on its
 * size.
 */
struct mapping {
	uint64_t at, handle;
	struct mapping *left, *right;
};

static struct {
	pthread_mutex_t mutex; /* no other lock is taken under it */
	struct mapping *root;
} mappings = {.mutex = PTHREAD_MUTEX_INITIALIZER};

int handle_use(uint64_t handle)
{
	struct table_entry e;
	return table_use(TABLE_HANDLE, handle, 1, &e) > 0;
}

void handle_drop(uint64_t handle)
{
	struct table_entry e;
	if (table_use(TABLE_HANDLE, handle, -1, &e) == 0)
		region_release(e.device, e.size);
}

void handle_release_begin(struct handle_release *r, uint64_t handle)
{
	r->handle = handle;
	r->uses = table_use(TABLE_HANDLE, handle, -1, &r->entry);
	if (r->uses == 0)
		region_add_in_flight(r->entry.device, 1);
}

CUresult handle_release_end(struct handle_release *r, CUresult result)
{
	if (result == CUDA_SUCCESS && r->uses == 0) {
		region_release(r->entry.device, r->entry.size);
	} else if (result != CUDA_SUCCESS && r->uses > 0) {
		handle_use(r->handle);
	} else if (result != CUDA_SUCCESS && r->uses == 0) {
		r->entry.uses = 1;
		table_add(&r->entry);
	}
	if (r->uses == 0)
		region_add_in_flight(r->entry.device, -1);
	return result;
}

/* The driver does not tell the size of an imported handle: it is told by its mappings. */
void handle_imported(uint64_t handle)
{
	CUmemAllocationProp prop = {.location = {.type = 0}};
	fn_cuMemGetAllocationPropertiesFromHandle ask =
		ORIGINAL(cuMemGetAllocationPropertiesFromHandle);
	if (handle_use(handle))
		return; /* one of our own has one reference more */
	if (!ask || ask(&prop, handle) != CUDA_SUCCESS ||
	    prop.location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return;
	int device = settings_device(prop.location.id);
	struct table_entry e = {
		.kind = TABLE_HANDLE, .device = device, .key = handle, .link = IMPORTED, .uses = 1};
	if (device >= 0)
		table_add(&e);
}

static uint64_t heap_priority(const struct mapping *m)
{
	uint64_t h = m->at * 0x9e3779b97f4a7c15ULL;
	return h ^ h >> 32;
}

/* Parts a tree into what lies below an address and the rest. */
static void split_tree(struct mapping *t, uint64_t at, struct mapping **below,
		       struct mapping **rest)
{
	while (t)
		if (t->at < at) {
			*below = t;
			below = &t->right;
			t = t->right;
		} else {
			*rest = t;
			rest = &t->left;
			t = t->left;
		}
	*below = *rest = NULL;
}

/* Joins two trees; all of `a` lies below all of `b`. */
static struct mapping *join_trees(struct mapping *a, struct mapping *b)
{
	struct mapping *root = NULL, **to = &root;
	while (a && b)
		if (heap_priority(a) > heap_priority(b)) {
			*to = a;
			to = &a->right;
			a = a->right;
		} else {
			*to = b;
			to = &b->left;
			b = b->left;
		}
	*to = a ? a : b;
	return root;
}

/* Needs the mutex. What was known at the address is gone: the driver has given it to this one. */
static struct mapping *put_mapping(struct mapping *m)
{
	struct mapping *below, *old, *above;
	split_tree(mappings.root, m->at, &below, &above);
	split_tree(above, m->at + 1, &old, &above);
	m->left = m->right = NULL;
	mappings.root = join_trees(join_trees(below, m), above);
	return old;
}

static void drop_mapping(struct mapping *m)
{
	struct table_entry import;
	if (table_take(TABLE_IMPORT, m->at, &import))
		account_remove_uncounted(&import);
	handle_drop(m->handle);
	free(m);
}

void handle_mapped(uint64_t handle, uint64_t address, uint64_t bytes)
{
	struct table_entry e;
	struct mapping *m = malloc(sizeof *m), *old;
	if (!m)
		return; /* the use stays: charged until the process ends */
	*m = (struct mapping){.at = address, .handle = handle};
	pthread_mutex_lock(&mappings.mutex);
	old = put_mapping(m);
	pthread_mutex_unlock(&mappings.mutex);
	if (old)
		drop_mapping(old);
	if (table_get(TABLE_HANDLE, handle, &e) && e.link == IMPORTED)
		account_add_uncounted(TABLE_IMPORT, e.device, address, bytes, NULL);
}

struct mapping *handles_unmap_begin(uint64_t address, uint64_t bytes)
{
	struct mapping *below, *within = NULL, *above;
	uint64_t end = bytes < UINT64_MAX - address ? address + bytes : UINT64_MAX;
	pthread_mutex_lock(&mappings.mutex);
	if (mappings.root) {
		split_tree(mappings.root, address, &below, &above);
		split_tree(above, end, &within, &above);
		mappings.root = join_trees(below, above);
	}
	pthread_mutex_unlock(&mappings.mutex);
	return within;
}

/* Takes a tree apart without going down into it: its depth is not bounded by much. */
static struct mapping *take_root(struct mapping **tree)
{
	struct mapping *m = *tree;
	if (m)
		*tree = join_trees(m->left, m->right);
	return m;
}

CUresult handles_unmap_end(struct mapping *list, CUresult result)
{
	for (struct mapping *m; (m = take_root(&list));) {
		if (result == CUDA_SUCCESS) {
			drop_mapping(m);
			continue;
		}
		pthread_mutex_lock(&mappings.mutex);
		struct mapping *old = put_mapping(m);
		pthread_mutex_unlock(&mappings.mutex);
		if (old)
			drop_mapping(old);
	}
	return result;
}

void handles_after_fork(void)
{
	pthread_mutex_init(&mappings.mutex, NULL); /* a thread of the parent may have held it */
	mappings.root = NULL;
}
