/* SPDX-License-Identifier: Apache-2.0 */
/*
 * races_test.c: ordinary calls in an unfriendly order: two threads on one object, calls that the
 * driver carries out in part, processes that no fork handler sees, code with large arrays. The
 * limit holds at every instant, and all of it is to be had afterwards. The probes compare the books
 * with the fake card's own count.
 */
#include "machine.h"

#define MIB (1ULL << 20)

/* A probe that uses all of the limit and never more. */
static void exact(const char *name, const char *const *variables)
{
	machine(LIMITS);
	probe(name, variables);
	CHECK_EQ(peak(), 64 * MIB);
	done();
}

#define EXACT_TEST(text, name)     \
	TEST(text)                 \
	{                          \
		exact(name, NULL); \
	}

EXACT_TEST("an allocation is charged when another thread ends the capture before it",
	   "race-capture-pool")
EXACT_TEST("memory whose freeing was recorded stays charged", "race-capture-free")
EXACT_TEST("a graph is refused when another thread ends the capture before its launch",
	   "race-capture-graph")
EXACT_TEST("a handle that is mapped while it is released keeps its charge", "race-map-release")
EXACT_TEST("a handle that is retained while it is unmapped keeps its charge", "race-retain-unmap")
TEST("blocks that are made while their context is reset cost nothing afterwards")
{
	exact("race-reset", NULL);
	exact("race-reset", (const char *const[]){"PROBE_ARRAYS", "1", NULL});
}

/* What a driver has done of a list that it refuses is not known. */
TEST("a sparse list that is refused half way is charged as far as it was carried out")
{
	static const char *const whole[] = {"FAKEGPU_SPARSE", "whole", NULL};
	exact("partial-lists", NULL);
	exact("partial-unmapped", NULL);
	exact("partial-lists", whole);
	exact("partial-unmapped", whole);
}

/* Nor what becomes of a mapping that a range cuts. */
TEST("a range that cuts a mapping credits what the driver has unmapped")
{
	exact("partial-ranges", NULL);
	exact("partial-ranges", (const char *const[]){"FAKEGPU_UNMAP", "cut", NULL});
	exact("partial-ranges", (const char *const[]){"FAKEGPU_UNMAP", "refuse", NULL});
}

EXACT_TEST("children that no fork handler has seen have one limit together", "relatives-sum")
EXACT_TEST("memory of a dead process comes back while a child of it lives", "relatives-dead-owner")
EXACT_TEST("memory of a dead child comes back while its child lives", "relatives-dead-child")
EXACT_TEST("memory of a dead neighbour comes back without descriptor and file",
	   "relatives-deleted")
EXACT_TEST("arrays that code declares are refused like data, by the size in its image",
	   "module-data")

/* NVML tells it only afterwards. */
TEST("arrays of an image that cannot be read are refused when they were measured")
{
	machine(LIMITS);
	probe("module-unread", NULL);
	CHECK(peak() <= (2 + 100) * MIB);
	done();
}

TEST_MAIN
