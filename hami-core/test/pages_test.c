/* SPDX-License-Identifier: Apache-2.0 */
/* pages_test.c: who pays for a page, and where the driver puts the next small block. */
#include "model/limit.h"
#include "model/pages.h"
#include "testing.h"

#define P PAGE_BYTES

static const struct packing ours = {0, PAGES_PLAIN, 1}, managed = {0, PAGES_MANAGED, 1},
			    others = {0, PAGES_PLAIN, 2};

static uint64_t enter(uint64_t at, uint64_t size)
{
	return pages_add(size <= SMALL_MOST ? &ours : NULL, at, size, UINT64_MAX - 1);
}

static uint64_t go(uint64_t at, uint64_t size)
{
	pages_free_begin(at, size);
	return pages_free_end(at, size);
}

TEST("small allocations in one page cost one page, until the last is freed")
{
	CHECK_EQ(enter(10 * P, 512), P);
	CHECK_EQ(enter(10 * P + 512, 4096), 0);
	CHECK_EQ(go(10 * P, 512), 0);
	CHECK_EQ(go(10 * P + 512, 4096), P);
}

TEST("whole pages are an allocation's own")
{
	CHECK_EQ(enter(10 * P, 3 * P), 3 * P);
	CHECK_EQ(enter(20 * P, 2 * P + 1), 3 * P);
	CHECK_EQ(pages_add(NULL, 22 * P + 1, 100, P), 0); /* the rest of that last page */
	CHECK_EQ(pages_exclusive_bytes(20 * P, 2 * P + 1), 2 * P);
	CHECK_EQ(go(20 * P, 2 * P + 1), 2 * P);
}

TEST("a page beyond the budget is nobody's, until somebody pays, who gets it credited")
{
	CHECK_EQ(pages_add(&ours, 10 * P, 512, 0), P);
	CHECK_EQ(go(10 * P, 512), 0);
	CHECK_EQ(pages_add(&ours, 10 * P, 512, 0), P);
	CHECK_EQ(pages_add(&ours, 10 * P + 512, 512, P), P); /* the next one in it owes it, too */
	CHECK_EQ(go(10 * P + 512, 512), 0);
	CHECK_EQ(go(10 * P, 512), P);
	CHECK_EQ(pages_add(&ours, 10 * P, 512, 0), P);
	pages_pay(10 * P, 512);
	CHECK_EQ(go(10 * P, 512), P);
}

TEST("the tail of the latest page is foreseen for its context and kind alone")
{
	CHECK_EQ(pages_find_room(&ours, 1), 0);
	CHECK_EQ(enter(10 * P, 700), P); /* takes 1024 */
	CHECK_EQ(pages_find_room(&ours, SMALL_MOST), 10);
	CHECK_EQ(pages_find_room(&ours, SMALL_MOST + 1), 0);
	CHECK_EQ(pages_find_room(&managed, 1), 0);
	CHECK_EQ(pages_find_room(&others, 1), 0);
	CHECK_EQ(enter(10 * P + 1024, SMALL_MOST), 0);
	CHECK_EQ(pages_find_room(&ours, P - SMALL_MOST - 1024), 10);
	CHECK_EQ(pages_find_room(&ours, P - SMALL_MOST - 1023), 0);
	CHECK_EQ(go(10 * P + 1024, SMALL_MOST), 0); /* the driver may or may not use that again */
	CHECK_EQ(pages_find_room(&ours, SMALL_MOST), 0);
	CHECK_EQ(enter(20 * P, 512), P); /* the driver has gone on to another page */
	CHECK_EQ(pages_find_room(&ours, SMALL_MOST), 20);
	CHECK_EQ(go(20 * P, 512), P);
	CHECK_EQ(pages_find_room(&ours, 1), 0);
}

TEST("nothing is foreseen in a page that is unpaid, of an unknown kind, or of a context that has "
     "gone")
{
	const struct packing unknown = {0, PAGES_UNKNOWN, 1};
	CHECK_EQ(pages_add(&ours, 10 * P, 512, 0), P);
	CHECK_EQ(pages_find_room(&ours, 1), 0);
	CHECK_EQ(pages_add(&unknown, 20 * P, 512, P), P);
	CHECK_EQ(pages_find_room(&unknown, 1), 0);
	CHECK_EQ(enter(30 * P, 512), P);
	CHECK_EQ(pages_find_room(&ours, 1), 30);
	CHECK_EQ(pages_add(&others, 30 * P + 512, 512, P), 0); /* then it is not as we thought */
	CHECK_EQ(pages_find_room(&ours, 1), 0);
	CHECK_EQ(enter(40 * P, 512), P);
	pages_forget_context(1);
	CHECK_EQ(pages_find_room(&ours, 1), 0);
}

TEST("a charge moves from a page that is being freed to the one opened instead, and back no more")
{
	CHECK_EQ(enter(10 * P, 512), P);
	CHECK_EQ(pages_add(&ours, 20 * P, 512, 0), P);
	CHECK(!pages_move_charge(10, 20 * P, 512)); /* what is in it stays */
	pages_free_begin(10 * P, 512);
	CHECK_EQ(pages_find_room(&ours, 1), 0); /* the latest page is the unpaid one */
	CHECK(pages_move_charge(10, 20 * P, 512));
	CHECK(!pages_move_charge(10, 20 * P, 512));
	CHECK_EQ(pages_free_end(10 * P, 512), 0);
	CHECK_EQ(go(20 * P, 512), P);
}

TEST("an allocation that the driver did not free owes the page whose charge has moved")
{
	CHECK_EQ(enter(10 * P, 512), P);
	pages_free_begin(10 * P, 512);
	CHECK_EQ(pages_add(&ours, 20 * P, 512, 0), P);
	CHECK(pages_move_charge(10, 20 * P, 512));
	CHECK_EQ(pages_free_cancel(10 * P, 512), P);
	CHECK_EQ(go(10 * P, 512), P);
}

TEST("an address given again before the old block is settled is a new page with one payer")
{
	CHECK_EQ(pages_add(NULL, 10 * P, 2 * P - 512, 2 * P), 2 * P);
	pages_free_begin(10 * P, 2 * P - 512);
	CHECK_EQ(enter(11 * P, 512), 0); /* the old one still pays */
	CHECK_EQ(pages_find_room(&ours, SMALL_MOST), 11);
	CHECK_EQ(pages_free_end(10 * P, 2 * P - 512), P);
	CHECK_EQ(go(11 * P, 512), P);
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
	srand(1);
	for (int round = 0; round < 100000 && !test_failed_checks; round++) {
		int i = rand() % SLOTS;
		if (live[i][1]) {
			pages_free_begin(live[i][0], live[i][1]);
			CHECK_EQ(pages_free_end(live[i][0], live[i][1]),
				 change(live[i][0], live[i][1], -1));
			live[i][1] = 0;
			continue;
		}
		uint64_t size = (uint64_t)(rand() % 4 ? rand() % 4096 + 1
						      : rand() % (3 * (int)P) + 1);
		uint64_t at = ((uint64_t)rand() * 512) % ((PAGES - 4) * P);
		if (rand() % 4 == 0)
			at = at / P * P;
		if (overlaps(live, at, size))
			continue;
		CHECK_EQ(enter(at, size), change(at, size, 1));
		live[i][0] = at;
		live[i][1] = size;
	}
}

TEST_MAIN
