/* SPDX-License-Identifier: Apache-2.0 */
/*
 * costs.h: what single kernels and graphs cost, by key, in nanoseconds of the device, for the whole
 * process. Thread-safe.
 */
#ifndef COSTS_H
#define COSTS_H

#include <stdint.h>

#define COST_SETS 1024
#define COST_WAYS 4 /* one line of the cache holds what a launch reads of a set */

struct cost_set {
	uint64_t key[COST_WAYS]; /* 0: nobody */
	/* 0 while it is new; read without a lock, a stale value does no harm */
	uint64_t estimate[COST_WAYS];
} __attribute__((aligned(64)));
extern struct cost_set cost_sets[COST_SETS] __attribute__((visibility("hidden")));

static inline unsigned cost_set_of(uint64_t key)
{
	return (unsigned)((key * 0x9e3779b97f4a7c15ULL) >> 54); /* the top 10 bits */
}

/* 0: not known. Lock-free. */
static inline uint64_t cost_of(uint64_t key)
{
	const struct cost_set *s = &cost_sets[cost_set_of(key)];
	for (int way = 0; way < COST_WAYS; way++)
		if (__atomic_load_n(&s->key[way], __ATOMIC_RELAXED) == key)
			return __atomic_load_n(&s->estimate[way], __ATOMIC_RELAXED);
	return 0;
}

/* Adds what one launch took, and how much of it the host may have: see pace_cost_sample. */
void cost_learn(uint64_t key, uint64_t elapsed, uint64_t late);

/* In a child after fork. */
void cost_reset(void);

#endif
