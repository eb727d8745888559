/* SPDX-License-Identifier: Apache-2.0 */
#include "platform/mutex.h"

#include "platform/prim.h"

#define SPINS 100     /* a holder that runs needs less */
#define SLEEP_MS 1000 /* prim_wait wants a bound; no wake-up is missed */

/*
 * Who has waited leaves the word at MUTEX_AWAITED also when nobody else waits: it cannot know. That
 * costs one wake-up too many.
 */
void mutex_wait(struct mutex *m)
{
	for (int i = 0; i < SPINS; i++) {
		uint32_t seen = MUTEX_FREE;
		if (__atomic_load_n(&m->word, __ATOMIC_RELAXED) == MUTEX_FREE &&
		    __atomic_compare_exchange_n(&m->word, &seen, MUTEX_HELD, 0, __ATOMIC_ACQUIRE,
						__ATOMIC_RELAXED))
			return;
		prim_relax();
	}
	while (__atomic_exchange_n(&m->word, MUTEX_AWAITED, __ATOMIC_ACQUIRE) != MUTEX_FREE)
		prim_wait(&m->word, MUTEX_AWAITED, SLEEP_MS);
}

void mutex_wake(struct mutex *m)
{
	prim_wake(&m->word);
}
