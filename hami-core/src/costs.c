/* SPDX-License-Identifier: Apache-2.0 */
#include "costs.h"

#include <pthread.h>
#include <string.h>

#include "pace.h"

#define COSTS 4096

/* Direct-mapped: a newcomer takes the place of another, which is then learnt again. */
static struct cost_entry {
	uint64_t key;
	uint64_t estimate; /* 0 while it is new; read without a lock, a stale value does no harm */
	struct pace_cost cost;
} costs[COSTS];
static pthread_mutex_t learning = PTHREAD_MUTEX_INITIALIZER;

static struct cost_entry *entry_of(uint64_t key)
{
	return &costs[(key * 0x9e3779b97f4a7c15ULL) >> 52]; /* the top 12 bits */
}

uint64_t cost_of(uint64_t key)
{
	const struct cost_entry *e = entry_of(key);
	return __atomic_load_n(&e->key, __ATOMIC_RELAXED) == key ? __atomic_load_n(&e->estimate, __ATOMIC_RELAXED) : 0;
}

void cost_reset(void)
{
	pthread_mutex_init(&learning, NULL); /* another thread of the parent may have held it */
	memset(costs, 0, sizeof costs);
}

void cost_learn(uint64_t key, uint64_t elapsed, uint64_t late)
{
	struct cost_entry *e = entry_of(key);
	pthread_mutex_lock(&learning);
	if (e->key != key) {
		__atomic_store_n(&e->estimate, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&e->key, key, __ATOMIC_RELAXED);
		e->cost = (struct pace_cost){0};
	}
	pace_cost_sample(&e->cost, elapsed, late);
	uint64_t estimate = pace_cost_is_new(&e->cost) ? 0 : pace_cost_estimate(&e->cost);
	__atomic_store_n(&e->estimate, estimate, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&learning);
}
