/* SPDX-License-Identifier: Apache-2.0 */
/* costs_test.c: which kernels' costs are remembered. */
#include "testing.h"

#include <stdint.h>

#include "model/costs.h"

static uint64_t seed = 1;

/* As wrap_launch.c makes them: odd, and far from each other. */
static uint64_t some_key(void)
{
	seed = seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return seed >> 16 | 1;
}

static void learn(uint64_t key, uint64_t ns, int times)
{
	while (times--)
		cost_learn(key, 0, 0, ns, 0);
}

TEST("a cost is known from the third sample on")
{
	CHECK_EQ(cost_of(5, 0), 0);
	learn(5, 1000, 2);
	CHECK_EQ(cost_of(5, 0), 0);
	learn(5, 1000, 1);
	CHECK_EQ(cost_of(5, 0), 1000);
	CHECK_EQ(cost_of(7, 0), 0);
	cost_reset();
	CHECK_EQ(cost_of(5, 0), 0);
}

TEST("nothing is learnt about no key")
{
	learn(0, 1000, 5);
	CHECK_EQ(cost_of(0, 0), 0);
}

TEST("a program with 1000 kernels or shapes keeps nearly all of them")
{
	static uint64_t keys[1000];
	int known = 0;
	for (int i = 0; i < 1000; i++)
		keys[i] = some_key();
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < 1000; i++)
			cost_learn(keys[i], 0, 0, 1000 + (uint64_t)i, 0);
	for (int i = 0; i < 1000; i++)
		known += cost_of(keys[i], 0) == 1000 + (uint64_t)i;
	printf("    %d of 1000\n", known);
	CHECK(known > 970);
}

TEST("kernels that run again and again outlast shapes that never come back")
{
	static uint64_t keys[100];
	int known = 0;
	for (int i = 0; i < 100; i++)
		keys[i] = some_key();
	for (int round = 0; round < 1000; round++) {
		for (int i = 0; i < 100; i++)
			learn(keys[i], 1000, 3);
		for (int i = 0; i < 1000; i++)
			cost_learn(some_key(), 0, 0, 5000, 0);
	}
	for (int i = 0; i < 100; i++)
		known += cost_of(keys[i], 0) == 1000;
	CHECK_EQ(known, 100);
}

TEST("what is used no more makes room")
{
	static uint64_t keys[4000];
	int known = 0;
	for (int i = 0; i < 4000; i++)
		learn(some_key(), 1000, 100);
	for (int i = 0; i < 400; i++)
		keys[i] = some_key();
	for (int round = 0; round < 40; round++)
		for (int i = 0; i < 400; i++)
			cost_learn(keys[i], 0, 0, 2000, 0);
	for (int i = 0; i < 400; i++)
		known += cost_of(keys[i], 0) == 2000;
	printf("    %d of 400\n", known);
	CHECK(known > 390);
}

/* Launches of a loop, in turn; ns per place. */
static void learn_loop(const uint64_t *keys, const uint64_t *ns, int places, int times)
{
	for (int i = 0; i < places * times; i++)
		cost_learn(keys[i % places], 0, keys[(i + places - 1) % places], ns[i % places], 0);
}

TEST("one kernel at several places of a loop costs what it takes at each of them")
{
	const uint64_t a = some_key(), b = some_key(), c = some_key(), d = some_key();
	const uint64_t keys[] = {a, b, a, c, a, d}, ns[] = {28000, 9000, 115000, 9000, 60000, 9000};
	cost_reset();
	learn_loop(keys, ns, 6, 100);
	CHECK(cost_of(a, d) == 28000 && cost_of(a, b) == 115000 && cost_of(a, c) == 60000);
	CHECK(cost_of(b, a) == 9000 && cost_of(b, c) == 9000);
	printf("    elsewhere %llu ns\n", (unsigned long long)cost_of(a, 77));
	CHECK(cost_of(a, 77) >= 60000 && cost_of(a, 77) <= 80000);
}

TEST("a kernel that takes about the same everywhere has one cost, however many places it is at")
{
	const uint64_t key = some_key();
	cost_reset();
	for (int i = 0; i < 20000; i++)
		cost_learn(key, 0, some_key(), 100000 + seed % 8000, 0);
	CHECK(cost_of(key, 5) > 99000 && cost_of(key, 5) < 109000);
	int taken = 0;
	for (int set = 0; set < COST_SETS; set++)
		for (int way = 0; way < COST_WAYS; way++)
			taken += cost_sets[set].key[way] != 0;
	CHECK_EQ(taken, 1);
}

TEST("places that never come back do not drive out the kernel, and it keeps a cost")
{
	const uint64_t key = some_key();
	cost_reset();
	for (int i = 0; i < 200000; i++)
		cost_learn(key, 0, some_key(), i % 4 ? 20000 : 100000, 0);
	CHECK(cost_of(key, 5) >= 30000 && cost_of(key, 5) <= 100000);
}

TEST("what launches of nearly a size took is known for one that is new, unless they differ much")
{
	enum { KIN = 999, OTHERS = 777 };
	cost_reset();
	for (int i = 0; i < 10; i++) {
		cost_learn(some_key(), KIN, 0, 5000, 0);
		cost_learn(some_key(), OTHERS, 0, i % 2 ? 5000 : 50000, 0);
	}
	CHECK_EQ(cost_of_kin(KIN), 5000);
	CHECK_EQ(cost_of_kin(OTHERS), 0);
	CHECK_EQ(cost_of_kin(0), 0);
}

TEST("a launch that is known itself teaches its kin nothing more")
{
	enum { KIN = 999, KEY = 5 };
	cost_reset();
	for (int i = 0; i < 100; i++)
		cost_learn(KEY, KIN, 0, i < 3 ? 1000 : 50000, 0);
	CHECK_EQ(cost_of_kin(KIN), 1000);
	CHECK(cost_of(KEY, 0) > 1000);
}

TEST_MAIN
