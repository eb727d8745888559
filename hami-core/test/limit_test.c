/* SPDX-License-Identifier: Apache-2.0 */
#include "model/array.h"
#include "model/limit.h"
#include "testing.h"

TEST("a limit admits up to itself and not a byte more")
{
	static const struct {
		uint64_t used, ask, limit;
		int admits;
	} table[] = {
		{0, 100, 100, 1},       {0, 101, 100, 0},        {99, 1, 100, 1},
		{100, 0, 100, 1},       {100, 1, 100, 0},        {200, 0, 100, 0},
		{0, UINT64_MAX, 0, 0},  {1, UINT64_MAX, 0, 0},   {UINT64_MAX, 1, 100, 0},
		{50, UINT64_MAX, 100, 0}, {0, UINT64_MAX, UINT64_MAX, 0}, {0, LIMIT_MOST, 0, 1},
		{0, LIMIT_MOST + 1, 0, 0}, {UINT64_MAX, 1, 0, 1}, {UINT64_MAX, 1, UINT64_MAX, 0},
		{UINT64_MAX - LIMIT_MOST, LIMIT_MOST, UINT64_MAX, 1},
	};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		CHECK_EQ(limit_admits(table[i].used, table[i].ask, table[i].limit), table[i].admits);
}

TEST("bytes are rounded up to whole pages without overflow")
{
	CHECK_EQ(limit_round_to_pages(0), 0);
	CHECK_EQ(limit_round_to_pages(1), PAGE_BYTES);
	CHECK_EQ(limit_round_to_pages(PAGE_BYTES), PAGE_BYTES);
	CHECK_EQ(limit_round_to_pages(PAGE_BYTES + 1), 2 * PAGE_BYTES);
	CHECK_EQ(limit_round_to_pages(UINT64_MAX), UINT64_MAX);
	CHECK_EQ(limit_round_to_pages(UINT64_MAX - PAGE_BYTES + 1), UINT64_MAX - PAGE_BYTES + 1);
}

TEST("a program is told the smaller of what there is and what it may have")
{
	CHECK_EQ(limit_visible_total(80, 10), 10);
	CHECK_EQ(limit_visible_total(8, 10), 8);
	CHECK_EQ(limit_visible_total(80, 0), 80);
	CHECK_EQ(limit_visible_free(80, 3, 10), 7);
	CHECK_EQ(limit_visible_free(5, 3, 10), 5);
	CHECK_EQ(limit_visible_free(80, 3, 0), 80);
	CHECK_EQ(limit_visible_free(80, 12, 10), 0);
}

TEST("answers of 32 bits end at their largest number")
{
	CHECK_EQ(limit_clamp_u32(7), 7);
	CHECK_EQ(limit_clamp_u32(1ULL << 32), UINT32_MAX);
}

TEST("an array takes its texels, a mipmap all its levels, layers do not shrink")
{
	static const struct {
		CUDA_ARRAY3D_DESCRIPTOR shape;
		unsigned levels;
		uint64_t bytes;
	} table[] = {
		{{100, 0, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1, 0}, 1, 100},
		{{100, 10, 0, CU_AD_FORMAT_HALF, 4, 0}, 1, 8000},
		{{8, 8, 8, CU_AD_FORMAT_FLOAT, 1, 0}, 1, 2048},
		{{8, 8, 8, CU_AD_FORMAT_FLOAT, 1, 0}, 4, 2048 + 256 + 32 + 4},
		{{8, 8, 6, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_CUBEMAP}, 2, 1536 + 384},
		{{8, 8, 0, CU_AD_FORMAT_BC1_UNORM, 4, 0}, 1, 64},
		{{8, 8, 0, 12345, 2, 0}, 1, 512},
		{{8, 8, 0, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_SPARSE}, 1, 0},
		{{SIZE_MAX, 2, 0, CU_AD_FORMAT_FLOAT, 1, 0}, 1, UINT64_MAX},
		{{8, 8, 0, CU_AD_FORMAT_FLOAT, 1, 0}, 0, 0},
	};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		CHECK_EQ(array_bytes(&table[i].shape, table[i].levels), table[i].bytes);
}

TEST_MAIN
