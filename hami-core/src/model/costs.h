/* SPDX-License-Identifier: Apache-2.0 */
/*
 * costs.h: what single kernels and graphs cost, by key, in nanoseconds of the device, for the whole
 * process. Thread-safe.
 */
#ifndef COSTS_H
#define COSTS_H

#include <stdint.h>

#define COST_SETS 2048
#define COST_WAYS 4 /* one line of the cache holds what a launch reads of a set */

struct cost_set {
	uint64_t key[COST_WAYS]; /* 0: nobody */
	/* 0 while it is new; read without a lock, a stale value does no harm */
	uint64_t estimate[COST_WAYS];
} __attribute__((aligned(64)));
extern struct cost_set cost_sets[COST_SETS] __attribute__((visibility("hidden")));

static inline unsigned cost_set_of(uint64_t key)
{
	return (unsigned)((key * 0x9e3779b97f4a7c15ULL) >> 53); /* the top 11 bits */
}

/* In an estimate: what was measured differs so much that the place of the launch matters. */
#define COST_VARIES (1ULL << 63)

/* What is noted of a key; 0: nothing. Lock-free. */
static inline uint64_t cost_lookup(uint64_t key)
{
	const struct cost_set *s = &cost_sets[cost_set_of(key)];
	for (int way = 0; way < COST_WAYS; way++)
		if (__atomic_load_n(&s->key[way], __ATOMIC_RELAXED) == key)
			return __atomic_load_n(&s->estimate[way], __ATOMIC_RELAXED);
	return 0;
}

/*
 * The key of a launch behind the one that its thread made before. Kernels of equal function and
 * size take longer where a parameter gives each block more to do (a product of matrices with longer
 * rows). A program launches them at different places of its loop.
 */
static inline uint64_t cost_key_after(uint64_t key, uint64_t before)
{
	return (key ^ (before | 1) * 0xbf58476d1ce4e5b9ULL) | 1;
}

/*
 * What a launch costs behind the one before. 0: not known. Where its cost varies and this place is
 * not known yet, what it costs at all of them. Lock-free.
 */
static inline uint64_t cost_of(uint64_t key, uint64_t before)
{
	uint64_t noted = cost_lookup(key);
	if (__builtin_expect(!(noted & COST_VARIES), 1))
		return noted;
	uint64_t here = cost_lookup(cost_key_after(key, before)) & ~COST_VARIES;
	return here ? here : noted & ~COST_VARIES;
}

/*
 * What a launch of a size that is not known costs, by those of nearly its size: `kin` is the key of
 * all of them, 0: none. 0: not known, or they differ too much to tell.
 */
static inline uint64_t cost_of_kin(uint64_t kin)
{
	uint64_t noted = kin ? cost_lookup(kin) : 0;
	return noted & COST_VARIES ? 0 : noted;
}

/*
 * Adds what one launch behind another one took, and how much of it the host may have: see
 * pace_cost_sample. Its kin learn from it while it is new itself.
 */
void cost_learn(uint64_t key, uint64_t kin, uint64_t before, uint64_t elapsed, uint64_t late);

/* In a child after fork. */
void cost_reset(void);

#endif
