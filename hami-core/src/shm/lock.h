/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lock.h: a lock in memory that processes share and any of them may spoil. It is always had in
 * the end: at once from a holder who is dead or cannot be one, and from one who does not give
 * it back when this process's patience is over.
 *
 * Who loses the lock that way learns it from lock_give, and decides again. One thread of a
 * process at a time: the caller has a mutex in front of it.
 */
#ifndef LOCK_H
#define LOCK_H

#include <stdint.h>

/* Whether what the lock protects is as its last holder left it, or has to be checked. */
enum lock_taken { LOCK_CLEAN, LOCK_SEIZED };

/*
 * Takes the lock for `me`, a number below VGPU_AWAITED and not 0.
 * may_hold: whether a number can be a living holder's.
 */
enum lock_taken lock_take(uint32_t *word, uint32_t me, int (*may_hold)(uint32_t owner));

/*
 * Gives the lock back. -1 when somebody has taken it from `me`: what was read and written
 * under it may be wrong.
 */
int lock_give(uint32_t *word, uint32_t me);

/*
 * The time that this process waits for others who do not move, in all its calls together:
 * 10 s. What is spent comes back by 1 % of the time that passes. 1 while there is some left.
 */
int lock_spend_patience(long long ms);
/* In a child after fork: as at the start. */
void lock_after_fork(void);

#endif
