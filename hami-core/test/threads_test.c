/* SPDX-License-Identifier: Apache-2.0 */
/*
 * threads_test.c: mutex, table and region under many threads at once; made for ThreadSanitizer.
 */
#define _GNU_SOURCE
#include "testing.h"

#include <pthread.h>
#include <time.h>

#include "model/limit.h"
#include "model/pages.h"
#include "model/table.h"
#include "platform/mutex.h"
#include "shm/region.h"

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

static struct mutex mutex;
static long counted; /* under the mutex */

/* Every tenth holder goes to sleep with it: the others have to wait, and to be woken. */
static void *count(void *number)
{
	struct timespec moment = {.tv_nsec = 50000};
	(void)number;
	for (int i = 0; i < ROUNDS / 10; i++) {
		mutex_take(&mutex);
		long before = counted;
		if (i % 10 == 0)
			nanosleep(&moment, NULL);
		counted = before + 1;
		mutex_give(&mutex);
	}
	return NULL;
}

static long long now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

TEST("threads have the mutex one at a time")
{
	together(count);
	CHECK_EQ(counted, THREADS * (ROUNDS / 10));
	CHECK_EQ(mutex.word, MUTEX_FREE);
}

static void *take_once(void *took_ms)
{
	mutex_take(&mutex);
	*(long long *)took_ms = now_ms();
	mutex_give(&mutex);
	return NULL;
}

/* Nobody who sleeps looks again within a second. The machine may be busy: the best of some. */
TEST("who waits for the mutex is woken when it is given back")
{
	long long least = 1000, took;
	for (int i = 0; i < 5; i++) {
		struct timespec asleep = {.tv_nsec = 50000000};
		pthread_t thread;
		mutex_take(&mutex);
		CHECK(!pthread_create(&thread, NULL, take_once, &took));
		nanosleep(&asleep, NULL);
		long long given = now_ms();
		mutex_give(&mutex);
		pthread_join(thread, NULL);
		least = took - given < least ? took - given : least;
	}
	CHECK(least < 500);
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
		paid += pages_add(&by, e.key, e.size, PAGE_BYTES);
		(void)pages_find_room(&by, 512);
		CHECK(table_take(TABLE_PLAIN, e.key, &e));
		pages_free_begin(e.key, e.size);
		credited += pages_free_end(e.key, e.size);
	}
	__atomic_add_fetch(&balance, paid - credited, __ATOMIC_RELAXED);
	return NULL;
}

TEST("threads share the table, and its pages are counted right in the end")
{
	together(add_and_take);
	CHECK_EQ(balance, 0);
	CHECK_EQ(pages_add(NULL, 1ULL << 40, 4096, 0), PAGE_BYTES);
}

static struct limits limits = {.source = LIMITS_FILE};

static void *reserve_and_release(void *number)
{
	(void)number;
	for (int i = 0; i < ROUNDS; i++) {
		if (region_reserve(0, PAGE_BYTES, LIMIT) == 0)
			region_release(0, PAGE_BYTES);
		region_add_overhead(0, REGION_MODULE, 4096, 1);
		region_add_overhead(0, REGION_MODULE, -4096, 1);
		struct region_process list[4];
		unsigned tries;
		(void)region_processes(0, list, 4);
		region_learn_context(0, 5 << 20, REGION_ALONE);
		(void)region_context_bytes(0, &tries);
		(void)region_count_context_event(0);
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
