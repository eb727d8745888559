/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exact_test.c: between threads, processes and contexts the limit is exact to the page, at any
 * instant.
 */
#include "machine.h"

#define EXACT_TEST(text, name)               \
	TEST(text)                           \
	{                                    \
		machine(LIMITS);             \
		probe(name, NULL);           \
		CHECK_EQ(peak(), 64ULL << 20); \
		done();                      \
	}
EXACT_TEST("2 to 16 threads with blocks of up to 1 MiB get the limit and not a page more",
	   "exact-small")
EXACT_TEST("8 threads with blocks of 1 to 2 MiB get the limit and not a page more", "exact-page")
EXACT_TEST("threads with blocks of all sizes get the limit and not a page more", "exact-mixed")
EXACT_TEST("24 processes with small blocks get the limit and not a page more", "exact-processes")
EXACT_TEST("one thread is refused only what would exceed the limit, whatever it allocates",
	   "exact-walk")
EXACT_TEST("small blocks that fit into the last page are never refused, in 8 threads either",
	   "exact-last")
EXACT_TEST("contexts that go with their memory leave no page unpaid and none paid for",
	   "exact-contexts")

/* What it took on its own account, a page, it has back at once. */
TEST("a driver that packs otherwise is believed no more, and the books stay true")
{
	machine(LIMITS);
	probe("exact-unpacked", (const char *const[]){"FAKEGPU_PACKING", "none", NULL});
	CHECK(strstr(output, "does not pack small allocations as foreseen") != NULL);
	CHECK_EQ(peak(), 66ULL << 20);
	done();
}

EXACT_TEST("children of a process with threads, graphs and pools change nothing that it has paid for",
	   "exact-forks")

EXACT_TEST("after threads have freed everything, all of it can be had at once", "exact-code")

TEST_MAIN
