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
		cost_learn(key, ns, 0);
}

TEST("a cost is known from the third sample on")
{
	CHECK_EQ(cost_of(5), 0);
	learn(5, 1000, 2);
	CHECK_EQ(cost_of(5), 0);
	learn(5, 1000, 1);
	CHECK_EQ(cost_of(5), 1000);
	CHECK_EQ(cost_of(7), 0);
	cost_reset();
	CHECK_EQ(cost_of(5), 0);
}

TEST("nothing is learnt about no key")
{
	learn(0, 1000, 5);
	CHECK_EQ(cost_of(0), 0);
}

TEST("a program with 1000 kernels or shapes keeps nearly all of them")
{
	static uint64_t keys[1000];
	int known = 0;
	for (int i = 0; i < 1000; i++)
		keys[i] = some_key();
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < 1000; i++)
			cost_learn(keys[i], 1000 + (uint64_t)i, 0);
	for (int i = 0; i < 1000; i++)
		known += cost_of(keys[i]) == 1000 + (uint64_t)i;
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
			cost_learn(some_key(), 5000, 0);
	}
	for (int i = 0; i < 100; i++)
		known += cost_of(keys[i]) == 1000;
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
			cost_learn(keys[i], 2000, 0);
	for (int i = 0; i < 400; i++)
		known += cost_of(keys[i]) == 2000;
	printf("    %d of 400\n", known);
	CHECK(known > 390);
}

TEST_MAIN
