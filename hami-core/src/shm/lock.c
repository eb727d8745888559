/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/lock.h"

#include <stdlib.h>

#include "hamicore_abi.h"
#include "platform/log.h"
#include "platform/prim.h"

#define PATIENCE_MS 10000 /* a holder needs well under a millisecond; longer means it is stopped */
#define RETURNS 100       /* milliseconds after which one of patience has come back */
#define SPINS 100
#define POLL_MS 2

static struct {
	long long left, since; /* milliseconds, as of then; since 0: nothing was spent yet */
	int told;
} self;

static long long patience_most_ms(void)
{
#ifdef HAMICORE_TEST_BUILD
	const char *ms = getenv("HAMICORE_TEST_PATIENCE_MS");
	if (ms)
		return atoll(ms);
#endif
	return PATIENCE_MS;
}

int lock_spend_patience(long long ms)
{
	long long now = prim_coarse_ms();
	long long back = self.since ? (now - ms - self.since) / RETURNS : patience_most_ms();
	if (back > 0)
		self.left = self.left + back < patience_most_ms() ? self.left + back
								  : patience_most_ms();
	if (back > 0 || ms > 0)
		self.since = now;
	self.left = self.left > ms ? self.left - ms : 0;
	return self.left > 0;
}

void lock_after_fork(void)
{
	self.left = self.since = 0;
	self.told = 0;
}

static uint32_t load_word(const uint32_t *word)
{
	return __atomic_load_n(word, __ATOMIC_RELAXED);
}

static int try_swap(uint32_t *word, uint32_t *seen, uint32_t next)
{
	return __atomic_compare_exchange_n(word, seen, next, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static int try_release(uint32_t *word, uint32_t *seen)
{
	return __atomic_compare_exchange_n(word, seen, 0, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

/* Takes a lock that is given back within the next microseconds. */
static int spin_for_lock(uint32_t *word, uint32_t me)
{
	for (int i = 0; i < SPINS; i++) {
		uint32_t seen = load_word(word), awaited = seen & VGPU_AWAITED;
		if (seen == awaited && try_swap(word, &seen, me | awaited))
			return 1;
		prim_relax();
	}
	return 0;
}

/* Takes the lock from whoever has it. */
static enum lock_taken seize_lock(uint32_t *word, uint32_t me, uint32_t owner)
{
	log_line(self.told ? LOG_INFO : LOG_WARN,
		 "the region's lock is taken from holder %u, who has not given it back in the 10 s "
		 "that this process waits for others in all", owner);
	self.told = 1;
	__atomic_exchange_n(word, me | VGPU_AWAITED, __ATOMIC_ACQUIRE);
	return LOCK_SEIZED;
}

/*
 * Sleeps until the lock may be free. Whether to go on waiting: the time counts when the holder
 * has not changed in it.
 */
static int wait_for_holder(uint32_t *word, uint32_t seen, long long began)
{
	long long before = prim_coarse_ms();
	if (!(seen & VGPU_AWAITED) && !try_swap(word, &seen, seen | VGPU_AWAITED))
		return 1;
	prim_wait(word, seen | VGPU_AWAITED, POLL_MS);
	long long now = prim_coarse_ms();
	int stuck = ((load_word(word) ^ seen) & ~VGPU_AWAITED) == 0;
	return (!stuck || lock_spend_patience(now - before)) && now - began < patience_most_ms();
}

__attribute__((cold)) static enum lock_taken
take_contended(uint32_t *word, uint32_t me, int (*may_hold)(uint32_t owner))
{
	long long began = prim_coarse_ms();
	if (spin_for_lock(word, me))
		return LOCK_CLEAN;
	for (;;) {
		uint32_t seen = load_word(word), owner = seen & ~VGPU_AWAITED;
		int held = owner && may_hold(owner);
		if (held && !wait_for_holder(word, seen, began))
			return seize_lock(word, me, owner);
		if (!held && try_swap(word, &seen, me | VGPU_AWAITED))
			return owner ? LOCK_SEIZED : LOCK_CLEAN;
		if (!held && prim_coarse_ms() - began >= patience_most_ms())
			return seize_lock(word, me, owner); /* somebody writes it again and again */
	}
}

enum lock_taken lock_take(uint32_t *word, uint32_t me, int (*may_hold)(uint32_t owner))
{
	uint32_t seen = 0;
	if (__builtin_expect(try_swap(word, &seen, me), 1))
		return LOCK_CLEAN;
	return take_contended(word, me, may_hold);
}

int lock_give(uint32_t *word, uint32_t me)
{
	uint32_t seen = me;
	if (__builtin_expect(try_release(word, &seen), 1))
		return 0;
	while ((seen & ~VGPU_AWAITED) == me)
		if (try_release(word, &seen)) {
			prim_wake(word);
			return 0;
		}
	return -1;
}
