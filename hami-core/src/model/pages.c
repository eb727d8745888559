/* SPDX-License-Identifier: Apache-2.0 */
#include "model/pages.h"

#include <stdlib.h>
#include <string.h>

#include "model/limit.h"
#include "platform/mutex.h"

#define BUCKETS 4096 /* a power of two */

/* Where the driver has put the latest small block of a kind. */
struct packer {
	struct packing by;
	uint64_t page; /* 0: nowhere */
	struct packer *next;
};

/* A page that is not wholly one allocation's. */
struct page {
	uint64_t number, end;        /* end: the highest in it that was ever used, bytes */
	uint32_t touches, leaving;   /* allocations in it; those of them that are being freed */
	int paid;
	const struct packer *packer; /* whose small blocks it holds; NULL: other memory */
	struct page *next;
};

static struct {
	struct mutex mutex;
	struct page *page[BUCKETS];
	struct packer *packers;
} self;

/* The pages of an allocation: `whole` of its own, and up to two that it may share. */
struct page_range {
	uint64_t whole, edge[2];
	int edges;
};

/* The usual large block: it shares no page, so nothing has to be looked up. */
static int is_whole(uint64_t at, uint64_t size)
{
	return ((at | size) & (PAGE_BYTES - 1)) == 0;
}

static struct page_range page_range_of(uint64_t at, uint64_t size)
{
	uint64_t first = at / PAGE_BYTES, last = (at + size - 1) / PAGE_BYTES;
	struct page_range s = {.whole = last - first + 1};
	int head = at % PAGE_BYTES != 0, tail = (at + size) % PAGE_BYTES != 0;
	if (head || (first == last && tail))
		s.edge[s.edges++] = first;
	if (tail && first != last)
		s.edge[s.edges++] = last;
	s.whole -= (uint64_t)s.edges;
	return s;
}

uint64_t pages_exclusive_bytes(uint64_t at, uint64_t size)
{
	return page_range_of(at, size).whole * PAGE_BYTES;
}

static struct page **find_page(uint64_t number)
{
	uint64_t mixed = number * 0x9e3779b97f4a7c15ULL; /* 2^64 / golden ratio */
	struct page **at = &self.page[(mixed ^ mixed >> 32) & (BUCKETS - 1)];
	while (*at && (*at)->number != number)
		at = &(*at)->next;
	return at;
}

static int is_same_packing(const struct packing *a, const struct packing *b)
{
	return a->context == b->context && a->kind == b->kind && a->device == b->device;
}

static struct packer *find_packer(const struct packing *by)
{
	struct packer *k = self.packers;
	while (k && !is_same_packing(&k->by, by))
		k = k->next;
	return k;
}

/* NULL where nothing is to be predicted, or without memory. */
static struct packer *packer_of(const struct packing *by)
{
	if (!by || by->kind == PAGES_UNKNOWN)
		return NULL;
	struct packer *k = find_packer(by);
	if (!k && (k = malloc(sizeof *k)) != NULL) {
		*k = (struct packer){.by = *by, .next = self.packers};
		self.packers = k;
	}
	return k;
}

/* NULL without memory. */
static struct page *touch_page(uint64_t number, const struct packer *packer)
{
	struct page **at = find_page(number), *p = *at;
	if (!p) {
		p = malloc(sizeof *p);
		if (!p)
			return NULL;
		*p = (struct page){.number = number, .packer = packer};
		*at = p;
	}
	if (p->packer != packer) {
		/*
		 * where all others are leaving, the driver gave the address again: it is a new
		 * page
		 */
		p->packer = p->leaving == p->touches ? packer : NULL;
		p->end = p->leaving == p->touches ? 0 : PAGE_BYTES;
	}
	p->touches++;
	return p;
}

/* One allocation less. 1 when the page is gone and was paid for. */
static int leave_page(uint64_t number)
{
	struct page **at = find_page(number), *p = *at;
	if (!p || --p->touches)
		return 0;
	int paid = p->paid;
	*at = p->next;
	free(p);
	return paid;
}

/* The driver packs in steps of 512 bytes. */
static uint64_t packed_size(uint64_t size)
{
	return (size + PACK_BYTES - 1) & ~(PACK_BYTES - 1);
}

/* Notes where a small block went; one across two pages tells nothing of the next. */
static void note_packed(struct packer *k, const struct page_range *s, struct page *p, uint64_t at,
			uint64_t size)
{
	uint64_t end = at % PAGE_BYTES + packed_size(size);
	k->page = s->edges == 1 && !s->whole ? p->number : 0;
	if (k->page && end > p->end)
		p->end = end;
}

uint64_t pages_add(const struct packing *by, uint64_t at, uint64_t size, uint64_t budget)
{
	struct page *p[2];
	if (is_whole(at, size))
		return size;
	struct page_range s = page_range_of(at, size);
	uint64_t owed = s.whole * PAGE_BYTES;
	mutex_take(&self.mutex);
	struct packer *k = packer_of(by);
	for (int i = 0; i < s.edges; i++) {
		p[i] = touch_page(s.edge[i], k);
		owed = p[i] ? owed + (p[i]->paid ? 0 : PAGE_BYTES) : UINT64_MAX;
		if (!p[i] && i)
			/* if that was paid for, another allocation is in it */
			(void)leave_page(s.edge[0]);
		if (!p[i])
			break;
	}
	for (int i = 0; i < s.edges && owed <= budget && owed != UINT64_MAX; i++)
		p[i]->paid = 1;
	if (k && owed != UINT64_MAX)
		note_packed(k, &s, p[0], at, size);
	mutex_give(&self.mutex);
	return owed;
}

/*
 * Pays for the pages at the edges, which `leaving` allocations fewer leave. Bytes not paid
 * before.
 */
static uint64_t pay_edges(uint64_t at, uint64_t size, uint32_t leaving)
{
	uint64_t bytes = 0;
	if (is_whole(at, size))
		return 0;
	struct page_range s = page_range_of(at, size);
	mutex_take(&self.mutex);
	for (int i = 0; i < s.edges; i++) {
		struct page *p = *find_page(s.edge[i]);
		if (!p)
			continue;
		p->leaving -= leaving;
		bytes += p->paid ? 0 : PAGE_BYTES;
		p->paid = 1;
	}
	mutex_give(&self.mutex);
	return bytes;
}

void pages_pay(uint64_t at, uint64_t size)
{
	(void)pay_edges(at, size, 0);
}

uint64_t pages_free_cancel(uint64_t at, uint64_t size)
{
	return pay_edges(at, size, 1);
}

void pages_free_begin(uint64_t at, uint64_t size)
{
	if (is_whole(at, size))
		return;
	struct page_range s = page_range_of(at, size);
	mutex_take(&self.mutex);
	for (int i = 0; i < s.edges; i++) {
		struct page *p = *find_page(s.edge[i]);
		if (p)
			p->leaving++;
	}
	mutex_give(&self.mutex);
}

/* The one page of a small block; NULL when it touches several. */
static struct page *only_page(uint64_t at, uint64_t size)
{
	struct page_range s = page_range_of(at, size);
	return s.edges == 1 && !s.whole ? *find_page(s.edge[0]) : NULL;
}

int pages_try_leave_shared(uint64_t at, uint64_t size)
{
	mutex_take(&self.mutex);
	struct page *p = only_page(at, size);
	int others = p && p->touches > 1;
	if (others) {
		p->touches--;
		p->leaving--;
	}
	mutex_give(&self.mutex);
	return others;
}

uint64_t pages_free_end(uint64_t at, uint64_t size)
{
	if (is_whole(at, size))
		return size;
	struct page_range s = page_range_of(at, size);
	uint64_t gone = s.whole;
	mutex_take(&self.mutex);
	for (int i = 0; i < s.edges; i++) {
		struct page *p = *find_page(s.edge[i]);
		if (p)
			p->leaving--;
		gone += (uint64_t)leave_page(s.edge[i]);
	}
	mutex_give(&self.mutex);
	return gone * PAGE_BYTES;
}

uint64_t pages_find_room(const struct packing *by, uint64_t size)
{
	uint64_t number = 0;
	if (by->kind == PAGES_UNKNOWN || size > SMALL_MOST)
		return 0;
	mutex_take(&self.mutex);
	const struct packer *k = find_packer(by);
	const struct page *p = k && k->page ? *find_page(k->page) : NULL;
	if (p && p->packer == k && p->paid && p->end + packed_size(size) <= PAGE_BYTES)
		number = p->number;
	mutex_give(&self.mutex);
	return number;
}

int pages_move_charge(uint64_t from, uint64_t at, uint64_t size)
{
	mutex_take(&self.mutex);
	struct page *old = *find_page(from), *p = only_page(at, size);
	int moves = old && p && old->paid && !p->paid && old->leaving == old->touches;
	if (moves) {
		old->paid = 0;
		p->paid = 1;
	}
	mutex_give(&self.mutex);
	return moves;
}

void pages_forget_context(uint64_t context)
{
	mutex_take(&self.mutex);
	for (struct packer **at = &self.packers; *at;) {
		struct packer *k = *at;
		if (k->by.context != context) {
			at = &k->next;
			continue;
		}
		*at = k->next;
		free(k);
	}
	mutex_give(&self.mutex);
}

void pages_reset(void)
{
	/* Another thread of the parent may have been at work in here: drop everything unread. */
	memset(&self, 0, sizeof self);
}
