/* SPDX-License-Identifier: Apache-2.0 */
#include "model/costs.h"

#include <pthread.h>
#include <string.h>

#include "model/pace.h"

#define WORTH 8 /* a way that has been learnt from so often outlasts as many newcomers */

struct cost_set cost_sets[COST_SETS];

static struct {
	struct pace_cost cost[COST_WAYS];
	unsigned char worth[COST_WAYS];
} learnt[COST_SETS];
static pthread_mutex_t learning = PTHREAD_MUTEX_INITIALIZER;

void cost_reset(void)
{
	pthread_mutex_init(&learning, NULL); /* another thread of the parent may have held it */
	memset(cost_sets, 0, sizeof cost_sets);
	memset(learnt, 0, sizeof learnt);
}

/*
 * The way for a newcomer: a free one, or the one that was least learnt from; then the others are
 * worth less (needs the mutex).
 */
static int evict_way(unsigned set)
{
	int least = 0;
	for (int way = 0; way < COST_WAYS; way++) {
		if (!cost_sets[set].key[way])
			return way;
		if (learnt[set].worth[way] < learnt[set].worth[least])
			least = way;
	}
	for (int way = 0; way < COST_WAYS; way++)
		learnt[set].worth[way] -= learnt[set].worth[way] > 0;
	return least;
}

/* The key's way in its set (needs the mutex). */
static int find_way(unsigned set, uint64_t key)
{
	for (int way = 0; way < COST_WAYS; way++)
		if (cost_sets[set].key[way] == key)
			return way;
	int way = evict_way(set);
	__atomic_store_n(&cost_sets[set].estimate[way], 0, __ATOMIC_RELAXED);
	__atomic_store_n(&cost_sets[set].key[way], key, __ATOMIC_RELAXED);
	learnt[set].cost[way] = (struct pace_cost){0};
	learnt[set].worth[way] = 0;
	return way;
}

/* Adds a sample to a key. Whether its cost varies (needs the mutex). */
static int learn_key(uint64_t key, uint64_t elapsed, uint64_t late)
{
	unsigned set = cost_set_of(key);
	int way = find_way(set, key);
	struct pace_cost *c = &learnt[set].cost[way];
	pace_cost_sample(c, elapsed, late);
	learnt[set].worth[way] += learnt[set].worth[way] < WORTH;
	uint64_t estimate = pace_cost_is_new(c) ? 0 : pace_cost_estimate(c);
	int varies = estimate && pace_cost_varies(c);
	__atomic_store_n(&cost_sets[set].estimate[way], varies ? estimate | COST_VARIES : estimate,
			 __ATOMIC_RELAXED);
	return varies;
}

void cost_learn(uint64_t key, uint64_t kin, uint64_t before, uint64_t elapsed, uint64_t late)
{
	if (!key)
		return;
	pthread_mutex_lock(&learning);
	if (kin && !cost_lookup(key))
		learn_key(kin, elapsed, late);
	if (learn_key(key, elapsed, late))
		learn_key(cost_key_after(key, before), elapsed, late);
	pthread_mutex_unlock(&learning);
}
