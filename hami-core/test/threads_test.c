/* SPDX-License-Identifier: Apache-2.0 */
/* threads_test.c: the table and the region under many threads at once; made for ThreadSanitizer. */
#define _GNU_SOURCE
#include "testing.h"

#include <pthread.h>

#include "model/limit.h"
#include "model/pages.h"
#include "shm/region.h"
#include "model/table.h"

#define THREADS 8
#define ROUNDS 3000
#define LIMIT (64ULL << 20)

static uint64_t balance; /* of pages, of all threads */

static void together(void *(*work)(void *))
{
	pthread_t t[THREADS];
	for (long i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&t[i], NULL, work, (void *)i));
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
}

/* Each thread has addresses of its own, in pages that it shares with its neighbours. */
static void *add_and_take(void *number)
{
	uint64_t base = (1ULL << 40) + (uint64_t)(long)number * 4096, paid = 0, credited = 0;
	const struct packing by = {0, PAGES_PLAIN, 7};
	struct table_entry e = {.kind = TABLE_PLAIN, .size = 4096, .link = 7};
	for (uint64_t i = 0; i < ROUNDS; i++) {
		e.key = base + i % 50 * PAGE_BYTES;
		CHECK_EQ(table_add(&e), 0);
		paid += pages_enter(&by, e.key, e.size, PAGE_BYTES);
		(void)pages_with_room(&by, 512);
		CHECK(table_take(TABLE_PLAIN, e.key, &e));
		pages_leaving(e.key, e.size);
		credited += pages_left(e.key, e.size);
	}
	__atomic_add_fetch(&balance, paid - credited, __ATOMIC_RELAXED);
	return NULL;
}

TEST("threads share the table, and its pages are counted right in the end")
{
	together(add_and_take);
	CHECK_EQ(balance, 0);
	CHECK_EQ(pages_enter(NULL, 1ULL << 40, 4096, 0), PAGE_BYTES);
}

static struct limits limits = {.source = LIMITS_FILE};

static void *reserve_and_release(void *number)
{
	(void)number;
	for (int i = 0; i < ROUNDS; i++) {
		if (region_reserve(0, PAGE_BYTES, LIMIT) == 0)
			region_release(0, PAGE_BYTES);
		region_overhead(0, REGION_MODULE, 4096, 1);
		region_overhead(0, REGION_MODULE, -4096, 1);
		struct region_process list[4];
		unsigned tries;
		(void)region_processes(0, list, 4);
		region_learn_context(0, 5 << 20, REGION_ALONE);
		(void)region_context_bytes(0, &tries);
		(void)region_context_event(0);
	}
	return NULL;
}

TEST("threads share the region, and nothing is left in the end")
{
	char why[256];
	snprintf(limits.region, sizeof limits.region, "/tmp/vgpu-threads-%d", (int)getpid());
	CHECK_EQ(region_attach(&limits, why, sizeof why), 0);
	together(reserve_and_release);
	CHECK_EQ(region_used(0), 0);
	CHECK_EQ(region_check(), 0);
	unlink(limits.region);
}

TEST_MAIN
