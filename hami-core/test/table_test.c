/* SPDX-License-Identifier: Apache-2.0 */
/* table_test.c: entries by kind and key. */
#include "model/table.h"
#include "testing.h"

#define STEP 4096

static void add(int device, uint64_t key, uint64_t link)
{
	struct table_entry e = {.kind = TABLE_PLAIN,
				.device = device,
				.key = key,
				.size = 100,
				.link = link};
	CHECK_EQ(table_add(&e), 0);
}

TEST("an entry that was taken can be put back as it was")
{
	struct table_entry e, again;
	add(2, STEP, 0);
	CHECK(table_take(TABLE_PLAIN, STEP, &e));
	CHECK(!table_take(TABLE_PLAIN, STEP, &again));
	table_put_back(&e);
	CHECK(table_take(TABLE_PLAIN, STEP, &again));
	CHECK(again.device == 2 && again.size == 100);
}

TEST("an entry whose key is known takes its place, and the old one is told")
{
	struct table_entry first = {.kind = TABLE_PLAIN, .key = 7, .size = 1}, second = first, old;
	second.size = 2;
	CHECK_EQ(table_replace(&first, &old), 0);
	CHECK_EQ(table_replace(&second, &old), 1);
	CHECK_EQ(old.size, 1);
	CHECK(table_take(TABLE_PLAIN, 7, &old) && old.size == 2);
	CHECK(!table_get(TABLE_PLAIN, 7, &old));
}

TEST("a handle goes with its last use, and kinds do not mix")
{
	struct table_entry e = {.kind = TABLE_HANDLE, .key = 7, .size = STEP, .uses = 1}, out;
	CHECK_EQ(table_add(&e), 0);
	CHECK(!table_get(TABLE_PLAIN, 7, &out));
	CHECK_EQ(table_use(TABLE_HANDLE, 7, 1, &out), 2);
	CHECK_EQ(table_use(TABLE_HANDLE, 7, -1, &out), 1);
	CHECK_EQ(table_use(TABLE_HANDLE, 7, -1, &out), 0);
	CHECK_EQ(out.size, STEP);
	CHECK_EQ(table_use(TABLE_HANDLE, 7, -1, &out), (unsigned long long)-1);
}

TEST("the entries of one context are taken together, the others stay")
{
	struct table_entry e;
	int n = 0;
	for (uint64_t i = 0; i < 100; i++)
		add(0, i * STEP, i % 3);
	for (struct table_entry *list = table_take_linked(TABLE_PLAIN, 1), *next; list;
	     list = next) {
		next = list->next;
		CHECK_EQ(list->key / STEP % 3, 1);
		free(list);
		n++;
	}
	CHECK_EQ(n, 33);
	for (uint64_t i = 0; i < 100; i++)
		CHECK_EQ(table_take(TABLE_PLAIN, i * STEP, &e), i % 3 != 1);
}

TEST("many entries are all found again")
{
	struct table_entry e;
	for (uint64_t i = 0; i < 50000; i++)
		add(0, i * STEP, 0);
	for (uint64_t i = 0; i < 50000; i++)
		CHECK(table_take(TABLE_PLAIN, i * STEP, &e));
}

TEST_MAIN
