/* SPDX-License-Identifier: Apache-2.0 */
#include "costs.h"

#include <pthread.h>
#include <string.h>

#include "pace.h"

#define SETS 1024
#define WAYS 4 /* one line of the cache holds what a launch reads of a set */
#define WORTH 8 /* a way that has been learnt from so often outlasts as many newcomers */

static struct set {
	uint64_t key[WAYS];      /* 0: nobody */
	uint64_t estimate[WAYS]; /* 0 while it is new; read without a lock, a stale value does no harm */
} __attribute__((aligned(64))) sets[SETS];

static struct {
	struct pace_cost cost[WAYS];
	unsigned char worth[WAYS];
} learnt[SETS];
static pthread_mutex_t learning = PTHREAD_MUTEX_INITIALIZER;

static unsigned set_of(uint64_t key)
{
	return (unsigned)((key * 0x9e3779b97f4a7c15ULL) >> 54); /* the top 10 bits */
}

uint64_t cost_of(uint64_t key)
{
	const struct set *s = &sets[set_of(key)];
	for (int way = 0; way < WAYS; way++)
		if (__atomic_load_n(&s->key[way], __ATOMIC_RELAXED) == key)
			return __atomic_load_n(&s->estimate[way], __ATOMIC_RELAXED);
	return 0;
}

void cost_reset(void)
{
	pthread_mutex_init(&learning, NULL); /* another thread of the parent may have held it */
	memset(sets, 0, sizeof sets);
	memset(learnt, 0, sizeof learnt);
}

/* The way for a newcomer: a free one, or the one that was least learnt from; then the others are worth less (needs the mutex). */
static int make_room(unsigned set)
{
	int least = 0;
	for (int way = 0; way < WAYS; way++) {
		if (!sets[set].key[way])
			return way;
		if (learnt[set].worth[way] < learnt[set].worth[least])
			least = way;
	}
	for (int way = 0; way < WAYS; way++)
		learnt[set].worth[way] -= learnt[set].worth[way] > 0;
	return least;
}

/* The key's way in its set (needs the mutex). */
static int way_of(unsigned set, uint64_t key)
{
	for (int way = 0; way < WAYS; way++)
		if (sets[set].key[way] == key)
			return way;
	int way = make_room(set);
	__atomic_store_n(&sets[set].estimate[way], 0, __ATOMIC_RELAXED);
	__atomic_store_n(&sets[set].key[way], key, __ATOMIC_RELAXED);
	learnt[set].cost[way] = (struct pace_cost){0};
	learnt[set].worth[way] = 0;
	return way;
}

void cost_learn(uint64_t key, uint64_t elapsed, uint64_t late)
{
	unsigned set = set_of(key);
	if (!key)
		return;
	pthread_mutex_lock(&learning);
	int way = way_of(set, key);
	struct pace_cost *c = &learnt[set].cost[way];
	pace_cost_sample(c, elapsed, late);
	learnt[set].worth[way] += learnt[set].worth[way] < WORTH;
	__atomic_store_n(&sets[set].estimate[way], pace_cost_is_new(c) ? 0 : pace_cost_estimate(c), __ATOMIC_RELAXED);
	pthread_mutex_unlock(&learning);
}
