/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mutex.h: a mutex of one word between the threads of a process, for sections that are mostly
 * short. It promises what pthread_mutex_t does and is taken and given back in place: the calls of
 * that one cost an allocation more than all that they protect.
 *
 * Zeroed memory is a free mutex. A child after fork zeroes it: another thread may have held it.
 */
#ifndef MUTEX_H
#define MUTEX_H

#include <stdint.h>

struct mutex {
	uint32_t word; /* MUTEX_FREE, _HELD or _AWAITED */
};
enum { MUTEX_FREE, MUTEX_HELD, MUTEX_AWAITED };

/* Takes a mutex that was not free. */
__attribute__((cold)) void mutex_wait(struct mutex *m);
/* Wakes one who waits. */
__attribute__((cold)) void mutex_wake(struct mutex *m);

static inline void mutex_take(struct mutex *m)
{
	uint32_t seen = MUTEX_FREE;
	if (!__atomic_compare_exchange_n(&m->word, &seen, MUTEX_HELD, 0, __ATOMIC_ACQUIRE,
					 __ATOMIC_RELAXED))
		mutex_wait(m);
}

static inline void mutex_give(struct mutex *m)
{
	if (__atomic_exchange_n(&m->word, MUTEX_FREE, __ATOMIC_RELEASE) == MUTEX_AWAITED)
		mutex_wake(m);
}

#endif
