/* SPDX-License-Identifier: Apache-2.0 */
#include "compute/lease.h"

#include <string.h>

#include "compute/budget.h"
#include "model/pace.h"
#include "platform/prim.h"
#include "shm/region.h"
#include "shm/word.h"

/* longer than a turn (turn_queue.c), so that no change falls into one */
#define LEASE_NS 30000000ULL
/* before the last one's work ends: better side by side for so long than nobody */
#define HANDOVER_NS 300000ULL
/* a program that waits for its work launches more within that time */
#define GRACE_NS 100000ULL
#define SILENT_NS 7000000ULL   /* longer than the longest sleep */
/* a kernel of which nothing is known may take so long: it should be measured alone */
#define GUESS_NS 25000000ULL
#define MEASURE_NS 100000000ULL /* and is left alone no longer */
#define POLL_NS 300000ULL

static uint64_t waiting_since[HAMI_DEVICES]; /* of this process; 0: it does not wait */

/* A moment that is at most so long ago. */
static int is_within(uint64_t then, uint64_t now, uint64_t limit)
{
	return then && (then > now ? then - now : now - then) < limit;
}

/* When the container's work ends; moments that cannot be right are over. */
static uint64_t work_end(const struct vgpu_lease *l, uint64_t now)
{
	uint64_t until = word_get(&l->until_ns);
	return until < now + PACE_WINDOW_NS * 10 ? until : 0;
}

/* Gives the lease back when this process has had it for so long and another one waits. */
static int hand_back_if_due(struct vgpu_lease *l, const struct work_in_flight *f, uint64_t most,
			    uint64_t now)
{
	uint64_t began = word_get(&l->began_ns), end = now + f->ns;
	int over = began <= end && end - began > (f->unknown ? MEASURE_NS : most);
	/* who has not begun yet waits for what all wait for */
	if (!began || !over || !is_within(word_get(&l->first_seen_ns), now, SILENT_NS))
		return 0;
	word_set(&l->until_ns, end);
	word_set(&l->holder, 0);
	return 1;
}

/* The holder goes on, unless it has had its time. */
static int renew_lease(struct vgpu_lease *l, const struct work_in_flight *f, uint64_t now)
{
	if (hand_back_if_due(l, f, LEASE_NS, now))
		return 0;
	word_set(&l->seen_ns, now);
	return 1;
}

/*
 * The last holder's work takes longer than it looked: the next one waits for it, else both would be
 * on the device from then on, and so would all after them. Not for ever: that work may wait for the
 * next one's.
 */
static void extend_for_late_work(struct vgpu_lease *l, const struct work_in_flight *f, uint64_t now)
{
	uint64_t left = f->ns ? f->ns : 2 * HANDOVER_NS;
	if (f->spans && !word_get(&l->holder) &&
	    is_within(word_get(&l->began_ns), now, MEASURE_NS) &&
	    word_get(&l->until_ns) < now + left)
		word_set(&l->until_ns, now + left);
}

/*
 * Whether the lease can be had: given back and the work nearly done, or its holder does not use it.
 */
static int is_available(const struct vgpu_lease *l, uint64_t now)
{
	uint64_t until = work_end(l, now);
	if (!word_get(&l->holder))
		return until <= now + HANDOVER_NS;
	return until + GRACE_NS <= now && !is_within(word_get(&l->seen_ns), now, SILENT_NS);
}

/* Says that this process waits; whether none has waited longer. */
static int is_first_waiter(struct vgpu_lease *l, uint64_t since, uint64_t now)
{
	uint64_t first = word_get(&l->first_ns);
	if (first && first < since && is_within(word_get(&l->first_seen_ns), now, SILENT_NS))
		return 0;
	word_set(&l->first_ns, since);
	word_set(&l->first_seen_ns, now);
	return 1;
}

static int try_take_lease(struct vgpu_lease *l, uint64_t before, uint64_t me, uint64_t now)
{
	if (!__atomic_compare_exchange_n(&l->holder, &before, me, 0, __ATOMIC_RELAXED,
					 __ATOMIC_RELAXED))
		return 0;
	word_set(&l->began_ns, 0);
	word_set(&l->seen_ns, now);
	word_set(&l->first_ns, 0);
	word_set(&l->first_seen_ns, 0);
	return 1;
}

uint64_t lease_wait(int device, const struct work_in_flight *f, uint64_t now)
{
	struct vgpu_lease *l = &budget_common(device)->lease;
	uint64_t me = region_own_process(), holder = word_get(&l->holder);
	if (holder == me && renew_lease(l, f, now))
		return 0;
	extend_for_late_work(l, f, now);
	uint64_t since = word_get(&waiting_since[device]);
	if (!since || since > now)
		word_set(&waiting_since[device], since = now);
	if (!is_first_waiter(l, since, now))
		return PACE_SLICE_NS;
	holder = word_get(&l->holder);
	if (is_available(l, now) && try_take_lease(l, holder, me, now)) {
		word_set(&waiting_since[device], 0);
		return 0;
	}
	uint64_t until = work_end(l, now),
		 left = until > now + HANDOVER_NS ? until - now - HANDOVER_NS : 0;
	return left < POLL_NS ? POLL_NS : left < PACE_SLICE_NS ? left : PACE_SLICE_NS;
}

void lease_extend(int device, uint64_t until, int unknown, uint64_t now)
{
	struct vgpu_lease *l = &budget_common(device)->lease;
	if (!word_get(&l->began_ns))
		word_set(&l->began_ns, now);
	word_set(&l->until_ns, until + (unknown ? GUESS_NS : 0));
	word_set(&l->seen_ns, 0);
}

void lease_yield(int device, const struct work_in_flight *f, uint64_t now)
{
	struct vgpu_lease *l = &budget_common(device)->lease;
	if (word_get(&l->holder) == region_own_process())
		hand_back_if_due(l, f, LEASE_NS / 2, now);
}

void lease_shorten(int device, uint64_t until)
{
	struct vgpu_lease *l = &budget_common(device)->lease;
	if (word_get(&l->holder) == region_own_process() && word_get(&l->until_ns) > until)
		word_set(&l->until_ns, until);
}

uint64_t lease_until(int device, uint64_t now)
{
	return work_end(&budget_common(device)->lease, now);
}

void lease_after_fork(void)
{
	memset(waiting_since, 0, sizeof waiting_since);
}
