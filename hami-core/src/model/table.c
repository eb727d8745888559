/* SPDX-License-Identifier: Apache-2.0 */
#include "model/table.h"

#include <stdlib.h>
#include <string.h>

#include "platform/mutex.h"

#define SPARE_MOST 1024 /* entries kept for the next allocations */
/* Buckets, a power of two; doubled when there are more entries than buckets. */
#define FIRST_SIZE 1024

struct map {
	struct table_entry **bucket;
	uint64_t size, count;
};

static struct {
	struct mutex mutex;
	struct map map[TABLE_KINDS];
	struct table_entry *spare;
	int spares;
} table;

static uint64_t hash_key(uint64_t key)
{
	key *= 0x9e3779b97f4a7c15ULL; /* 2^64 / golden ratio */
	return key ^ key >> 32;
}

static struct table_entry **find_entry(struct map *m, uint64_t key)
{
	static struct table_entry *nothing;
	if (!m->size)
		return nothing = NULL, &nothing;
	struct table_entry **at = &m->bucket[hash_key(key) & (m->size - 1)];
	while (*at && (*at)->key != key)
		at = &(*at)->next;
	return at;
}

/*
 * Doubles the buckets. A failure leaves the map as it is, only slower; -1 when there was none at
 * all.
 */
static int grow_map(struct map *m)
{
	uint64_t size = m->size ? m->size * 2 : FIRST_SIZE;
	struct table_entry **bucket = calloc(size, sizeof *bucket);
	if (!bucket)
		return m->size ? 0 : -1;
	for (uint64_t i = 0; i < m->size; i++)
		while (m->bucket[i]) {
			struct table_entry *e = m->bucket[i];
			m->bucket[i] = e->next;
			e->next = bucket[hash_key(e->key) & (size - 1)];
			bucket[hash_key(e->key) & (size - 1)] = e;
		}
	free(m->bucket);
	m->bucket = bucket;
	m->size = size;
	return 0;
}

static struct table_entry *new_entry(void)
{
	struct table_entry *e = table.spare;
	if (!e)
		return malloc(sizeof *e);
	table.spare = e->next;
	table.spares--;
	return e;
}

static void drop_entry(struct table_entry *e)
{
	if (table.spares >= SPARE_MOST) {
		free(e);
		return;
	}
	e->next = table.spare;
	table.spare = e;
	table.spares++;
}

/*
 * An entry with a known key is replaced: the driver gave the address again, so the old one is gone.
 * 1 when there was one, copied to *old; -1 without memory.
 */
static int insert_entry(const struct table_entry *entry, struct table_entry *old)
{
	struct map *m = &table.map[entry->kind];
	if (m->count >= m->size && grow_map(m))
		return -1;
	struct table_entry **at = find_entry(m, entry->key), *e = *at, *next = e ? e->next : NULL;
	int known = e != NULL;
	if (known) {
		*old = *e;
	} else {
		e = new_entry();
		if (!e)
			return -1;
		*at = e; /* the end of the bucket's list */
		m->count++;
	}
	*e = *entry;
	e->next = next;
	return known;
}

static void remove_entry(struct map *m, struct table_entry **at, struct table_entry *out)
{
	struct table_entry *e = *at;
	*at = e->next;
	*out = *e;
	out->next = NULL;
	drop_entry(e);
	m->count--;
}

int table_replace(const struct table_entry *entry, struct table_entry *old)
{
	mutex_take(&table.mutex);
	int r = insert_entry(entry, old);
	mutex_give(&table.mutex);
	return r;
}

int table_add(const struct table_entry *entry)
{
	struct table_entry old;
	return table_replace(entry, &old) < 0 ? -1 : 0;
}

int table_put_back(const struct table_entry *entry)
{
	struct table_entry old;
	mutex_take(&table.mutex);
	int known = *find_entry(&table.map[entry->kind], entry->key) != NULL;
	if (!known) /* without memory it stays charged until the process ends */
		(void)insert_entry(entry, &old);
	mutex_give(&table.mutex);
	return known;
}

int table_take(enum table_kind kind, uint64_t key, struct table_entry *out)
{
	mutex_take(&table.mutex);
	struct table_entry **at = find_entry(&table.map[kind], key);
	int found = *at != NULL;
	if (found)
		remove_entry(&table.map[kind], at, out);
	mutex_give(&table.mutex);
	return found;
}

struct table_entry *table_take_linked(enum table_kind kind, uint64_t link)
{
	struct map *m = &table.map[kind];
	struct table_entry *list = NULL;
	mutex_take(&table.mutex);
	for (uint64_t i = 0; i < m->size; i++)
		for (struct table_entry **at = &m->bucket[i]; *at;) {
			struct table_entry *e = *at;
			if (e->link != link) {
				at = &e->next;
				continue;
			}
			*at = e->next;
			e->next = list;
			list = e;
			m->count--;
		}
	mutex_give(&table.mutex);
	return list;
}

struct table_entry *table_copy_linked(enum table_kind kind, uint64_t link)
{
	struct map *m = &table.map[kind];
	struct table_entry *list = NULL;
	mutex_take(&table.mutex);
	for (uint64_t i = 0; m->count && i < m->size; i++)
		for (const struct table_entry *e = m->bucket[i]; e; e = e->next) {
			struct table_entry *copy = e->link == link ? malloc(sizeof *copy) : NULL;
			if (!copy)
				continue;
			*copy = *e;
			copy->next = list;
			list = copy;
		}
	mutex_give(&table.mutex);
	return list;
}

int table_get(enum table_kind kind, uint64_t key, struct table_entry *out)
{
	mutex_take(&table.mutex);
	struct table_entry *e = *find_entry(&table.map[kind], key);
	if (e)
		*out = *e;
	mutex_give(&table.mutex);
	return e != NULL;
}

long table_use(enum table_kind kind, uint64_t key, int change, struct table_entry *out)
{
	mutex_take(&table.mutex);
	struct table_entry **at = find_entry(&table.map[kind], key), *e = *at;
	long uses = -1;
	if (e) {
		e->uses = (uint32_t)((int64_t)e->uses + change);
		uses = e->uses;
		if (uses == 0)
			remove_entry(&table.map[kind], at, out);
	}
	mutex_give(&table.mutex);
	return uses;
}

void table_reset(void)
{
	/* Another thread of the parent may have been at work in here: drop everything unread. */
	memset(&table, 0, sizeof table);
}
