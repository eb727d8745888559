/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "limit.h"

#define FIRST_SIZE 1024 /* buckets, a power of two; doubled when there are more entries than buckets */

struct map {
	struct table_entry **bucket;
	uint64_t size, count;
};

/* How many allocations touch a page that is not wholly one allocation's. */
struct page {
	uint64_t number;
	uint32_t touches;
	int device;
	struct page *next;
};

static struct {
	pthread_mutex_t mutex;
	struct map map[TABLE_KINDS];
	struct page *page[FIRST_SIZE];
	uint64_t pages[64]; /* shared pages by device index */
} table = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static uint64_t mix(uint64_t key)
{
	key *= 0x9e3779b97f4a7c15ULL; /* 2^64 / golden ratio */
	return key ^ key >> 32;
}

static struct table_entry **find(struct map *m, uint64_t key)
{
	static struct table_entry *nothing;
	if (!m->size)
		return nothing = NULL, &nothing;
	struct table_entry **at = &m->bucket[mix(key) & (m->size - 1)];
	while (*at && (*at)->key != key)
		at = &(*at)->next;
	return at;
}

/* Doubles the buckets. A failure leaves the map as it is, only slower; -1 when there was none at all. */
static int grow(struct map *m)
{
	uint64_t size = m->size ? m->size * 2 : FIRST_SIZE;
	struct table_entry **bucket = calloc(size, sizeof *bucket);
	if (!bucket)
		return m->size ? 0 : -1;
	for (uint64_t i = 0; i < m->size; i++)
		while (m->bucket[i]) {
			struct table_entry *e = m->bucket[i];
			m->bucket[i] = e->next;
			e->next = bucket[mix(e->key) & (size - 1)];
			bucket[mix(e->key) & (size - 1)] = e;
		}
	free(m->bucket);
	m->bucket = bucket;
	m->size = size;
	return 0;
}

/* An entry with a known key is replaced: the driver gave the address again, so the old one is gone. */
static int insert(const struct table_entry *entry)
{
	struct map *m = &table.map[entry->kind];
	if (m->count >= m->size && grow(m))
		return -1;
	struct table_entry **at = find(m, entry->key), *e = *at;
	if (!e) {
		e = malloc(sizeof *e);
		if (!e)
			return -1;
		at = &m->bucket[mix(entry->key) & (m->size - 1)];
		*e = *entry;
		e->next = *at;
		*at = e;
		m->count++;
		return 0;
	}
	struct table_entry *next = e->next;
	*e = *entry;
	e->next = next;
	return 0;
}

static void take_out(struct map *m, struct table_entry **at, struct table_entry *out)
{
	struct table_entry *e = *at;
	*at = e->next;
	*out = *e;
	out->next = NULL;
	free(e);
	m->count--;
}

static struct page **find_page(uint64_t number)
{
	struct page **at = &table.page[mix(number) & (FIRST_SIZE - 1)];
	while (*at && (*at)->number != number)
		at = &(*at)->next;
	return at;
}

/* 1 when the page was not touched before; -1 without memory. */
static int touch(int device, uint64_t number)
{
	struct page **at = find_page(number), *p = *at;
	if (p)
		return p->touches++, 0;
	p = calloc(1, sizeof *p);
	if (!p)
		return -1;
	*p = (struct page){.number = number, .touches = 1, .device = device, .next = *at};
	*at = p;
	table.pages[device]++;
	return 1;
}

/* 1 when nothing touches the page any more. */
static int leave(uint64_t number)
{
	struct page **at = find_page(number), *p = *at;
	if (!p || --p->touches)
		return 0;
	*at = p->next;
	table.pages[p->device]--;
	free(p);
	return 1;
}

/* The pages of an allocation: `whole` of its own, and up to two that it may share. */
struct span {
	uint64_t whole, edge[2];
	int edges;
};

static struct span span_of(uint64_t address, uint64_t size)
{
	uint64_t first = address / PAGE_BYTES, last = (address + size - 1) / PAGE_BYTES;
	struct span s = {.whole = last - first + 1};
	int head = address % PAGE_BYTES != 0, tail = (address + size) % PAGE_BYTES != 0;
	if (head || (first == last && tail))
		s.edge[s.edges++] = first;
	if (tail && first != last)
		s.edge[s.edges++] = last;
	s.whole -= (uint64_t)s.edges;
	return s;
}

uint64_t table_add_plain(int device, uint64_t address, uint64_t size, uint64_t context)
{
	struct span s = span_of(address, size);
	struct table_entry e = {.kind = TABLE_PLAIN, .device = device, .key = address, .size = size, .link = context};
	uint64_t fresh = s.whole;
	int fault = 0;
	pthread_mutex_lock(&table.mutex);
	if (insert(&e))
		fault = 1;
	for (int i = 0; i < s.edges && !fault; i++) {
		int r = touch(device, s.edge[i]);
		fault = r < 0;
		fresh += r > 0;
	}
	pthread_mutex_unlock(&table.mutex);
	return fault ? UINT64_MAX : fresh * PAGE_BYTES;
}

uint64_t table_free_pages(const struct table_entry *entry)
{
	struct span s = span_of(entry->key, entry->size);
	uint64_t gone = s.whole;
	pthread_mutex_lock(&table.mutex);
	for (int i = 0; i < s.edges; i++)
		gone += (uint64_t)leave(s.edge[i]);
	pthread_mutex_unlock(&table.mutex);
	return gone * PAGE_BYTES;
}

int table_add(const struct table_entry *entry)
{
	pthread_mutex_lock(&table.mutex);
	int r = insert(entry);
	pthread_mutex_unlock(&table.mutex);
	return r;
}

void table_put_back(const struct table_entry *entry)
{
	(void)table_add(entry); /* its pages were never left; without memory it stays charged until the process ends */
}

int table_take(enum table_kind kind, uint64_t key, struct table_entry *out)
{
	pthread_mutex_lock(&table.mutex);
	struct table_entry **at = find(&table.map[kind], key);
	int found = *at != NULL;
	if (found)
		take_out(&table.map[kind], at, out);
	pthread_mutex_unlock(&table.mutex);
	return found;
}

struct table_entry *table_take_linked(enum table_kind kind, uint64_t link)
{
	struct map *m = &table.map[kind];
	struct table_entry *list = NULL;
	pthread_mutex_lock(&table.mutex);
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
	pthread_mutex_unlock(&table.mutex);
	return list;
}

int table_get(enum table_kind kind, uint64_t key, struct table_entry *out)
{
	pthread_mutex_lock(&table.mutex);
	struct table_entry *e = *find(&table.map[kind], key);
	if (e)
		*out = *e;
	pthread_mutex_unlock(&table.mutex);
	return e != NULL;
}

long table_use(enum table_kind kind, uint64_t key, int change, struct table_entry *out)
{
	pthread_mutex_lock(&table.mutex);
	struct table_entry **at = find(&table.map[kind], key), *e = *at;
	long uses = -1;
	if (e) {
		e->uses = (uint32_t)((int64_t)e->uses + change);
		uses = e->uses;
		if (uses == 0)
			take_out(&table.map[kind], at, out);
	}
	pthread_mutex_unlock(&table.mutex);
	return uses;
}

int table_has_partial_page(int device)
{
	pthread_mutex_lock(&table.mutex);
	int partial = table.pages[device] > 0;
	pthread_mutex_unlock(&table.mutex);
	return partial;
}

void table_reset(void)
{
	/* Another thread of the parent may have been at work in here: drop everything unread. */
	pthread_mutex_init(&table.mutex, NULL);
	memset(table.map, 0, sizeof table.map);
	memset(table.page, 0, sizeof table.page);
	memset(table.pages, 0, sizeof table.pages);
}
