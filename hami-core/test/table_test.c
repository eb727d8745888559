/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"
#include "limit.h"
#include "testing.h"

#define P PAGE_BYTES

TEST("small allocations in one page cost one page, until the last is freed")
{
	struct table_entry a, b;
	CHECK_EQ(table_add_plain(0, 10 * P, 512, 0), P);
	CHECK_EQ(table_add_plain(0, 10 * P + 512, 4096, 0), 0);
	CHECK(table_has_partial_page(0) && !table_has_partial_page(1));
	CHECK(table_take(TABLE_PLAIN, 10 * P, &a) && table_take(TABLE_PLAIN, 10 * P + 512, &b));
	CHECK_EQ(table_free_pages(&a), 0);
	CHECK_EQ(table_free_pages(&b), P);
	CHECK(!table_has_partial_page(0));
}

TEST("whole pages are an allocation's own")
{
	struct table_entry e;
	CHECK_EQ(table_add_plain(0, 10 * P, 3 * P, 0), 3 * P);
	CHECK_EQ(table_add_plain(0, 20 * P, 2 * P + 1, 0), 3 * P);
	CHECK_EQ(table_add_plain(0, 22 * P + 1, 100, 0), 0); /* the rest of that last page */
	CHECK(table_take(TABLE_PLAIN, 20 * P, &e));
	CHECK_EQ(table_free_pages(&e), 2 * P);
}

TEST("an entry that was taken can be put back as it was")
{
	struct table_entry e, again;
	table_add_plain(2, 4096, 100, 0);
	CHECK(table_take(TABLE_PLAIN, 4096, &e));
	CHECK(!table_take(TABLE_PLAIN, 4096, &again));
	table_put_back(&e);
	CHECK(table_take(TABLE_PLAIN, 4096, &again));
	CHECK(again.device == 2 && again.size == 100);
	CHECK_EQ(table_free_pages(&again), P);
}

TEST("a handle goes with its last use, and kinds do not mix")
{
	struct table_entry e = {.kind = TABLE_HANDLE, .key = 7, .size = P, .uses = 1}, out;
	CHECK_EQ(table_add(&e), 0);
	CHECK(!table_get(TABLE_PLAIN, 7, &out));
	CHECK_EQ(table_use(TABLE_HANDLE, 7, 1, &out), 2);
	CHECK_EQ(table_use(TABLE_HANDLE, 7, -1, &out), 1);
	CHECK_EQ(table_use(TABLE_HANDLE, 7, -1, &out), 0);
	CHECK_EQ(out.size, P);
	CHECK_EQ(table_use(TABLE_HANDLE, 7, -1, &out), (unsigned long long)-1);
}

TEST("the entries of one context are taken together, the others stay")
{
	struct table_entry e;
	int n = 0;
	for (uint64_t i = 0; i < 100; i++)
		table_add_plain(0, i * 4 * P, P, i % 3);
	for (struct table_entry *list = table_take_linked(TABLE_PLAIN, 1), *next; list; list = next) {
		next = list->next;
		CHECK_EQ(list->key / (4 * P) % 3, 1);
		free(list);
		n++;
	}
	CHECK_EQ(n, 33);
	for (uint64_t i = 0; i < 100; i++)
		CHECK_EQ(table_take(TABLE_PLAIN, i * 4 * P, &e), i % 3 != 1);
}

/* The oracle: how many live allocations touch each page of a small address space. */
#define PAGES 64
#define SLOTS 200
static int touched[PAGES];

static uint64_t change(uint64_t at, uint64_t size, int by)
{
	uint64_t pages = 0;
	for (uint64_t p = at / P; p <= (at + size - 1) / P; p++) {
		if (by > 0 && touched[p]++ == 0)
			pages++;
		if (by < 0 && --touched[p] == 0)
			pages++;
	}
	return pages * P;
}

static int overlaps(const uint64_t (*live)[2], uint64_t at, uint64_t size)
{
	for (int i = 0; i < SLOTS; i++)
		if (live[i][1] && at < live[i][0] + live[i][1] && live[i][0] < at + size)
			return 1;
	return 0;
}

TEST("after any sequence the pages charged are the pages touched")
{
	uint64_t live[SLOTS][2] = {{0}};
	struct table_entry e;
	srand(1);
	for (int round = 0; round < 100000 && !test_failed_checks; round++) {
		int i = rand() % SLOTS;
		if (live[i][1]) {
			CHECK(table_take(TABLE_PLAIN, live[i][0], &e));
			CHECK_EQ(table_free_pages(&e), change(live[i][0], live[i][1], -1));
			live[i][1] = 0;
			continue;
		}
		uint64_t size = (uint64_t)(rand() % 4 ? rand() % 4096 + 1 : rand() % (3 * (int)P) + 1);
		uint64_t at = ((uint64_t)rand() * 512) % ((PAGES - 4) * P);
		if (rand() % 4 == 0)
			at = at / P * P;
		if (overlaps(live, at, size))
			continue;
		CHECK_EQ(table_add_plain(0, at, size, 0), change(at, size, 1));
		live[i][0] = at;
		live[i][1] = size;
	}
}

TEST("many entries are all found again")
{
	struct table_entry e;
	for (uint64_t i = 0; i < 50000; i++)
		table_add_plain(0, i * 4 * P, P, 0);
	for (uint64_t i = 0; i < 50000; i++)
		CHECK(table_take(TABLE_PLAIN, i * 4 * P, &e));
}

TEST_MAIN
