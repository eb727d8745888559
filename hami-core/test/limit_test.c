/* SPDX-License-Identifier: Apache-2.0 */
#include "limit.h"
#include "testing.h"

TEST("a limit admits up to itself and not a byte more")
{
	static const struct {
		uint64_t used, ask, limit;
		int admits;
	} table[] = {
		{0, 100, 100, 1},       {0, 101, 100, 0},        {99, 1, 100, 1},
		{100, 0, 100, 1},       {100, 1, 100, 0},        {200, 0, 100, 0},
		{0, UINT64_MAX, 0, 1},  {1, UINT64_MAX, 0, 0},   {UINT64_MAX, 1, 100, 0},
		{50, UINT64_MAX, 100, 0}, {0, UINT64_MAX, UINT64_MAX, 1},
	};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		CHECK_EQ(limit_admits(table[i].used, table[i].ask, table[i].limit), table[i].admits);
}

TEST("bytes are rounded up to whole pages without overflow")
{
	CHECK_EQ(limit_pages(0), 0);
	CHECK_EQ(limit_pages(1), PAGE_BYTES);
	CHECK_EQ(limit_pages(PAGE_BYTES), PAGE_BYTES);
	CHECK_EQ(limit_pages(PAGE_BYTES + 1), 2 * PAGE_BYTES);
	CHECK_EQ(limit_pages(UINT64_MAX), UINT64_MAX);
	CHECK_EQ(limit_pages(UINT64_MAX - PAGE_BYTES + 1), UINT64_MAX - PAGE_BYTES + 1);
}

TEST("a program is told the smaller of what there is and what it may have")
{
	CHECK_EQ(limit_total(80, 10), 10);
	CHECK_EQ(limit_total(8, 10), 8);
	CHECK_EQ(limit_total(80, 0), 80);
	CHECK_EQ(limit_free(80, 3, 10), 7);
	CHECK_EQ(limit_free(5, 3, 10), 5);
	CHECK_EQ(limit_free(80, 3, 0), 80);
	CHECK_EQ(limit_free(80, 12, 10), 0);
}

TEST("answers of 32 bits end at their largest number")
{
	CHECK_EQ(limit_narrow(7), 7);
	CHECK_EQ(limit_narrow(1ULL << 32), UINT32_MAX);
}

TEST_MAIN
