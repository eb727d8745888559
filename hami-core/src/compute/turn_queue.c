/* SPDX-License-Identifier: Apache-2.0 */
#include "compute/turn_queue.h"

#include <stddef.h>

#include "compute/borrow.h"
#include "compute/lease.h"
#include "compute/neighbours.h"
#include "settings/settings.h"
#include "compute/budget.h"

/* of which a turn is a percentage: changes cost 2 % of it at worst, waits are shorter than it */
#define FRAME_NS 40000000LL
/* points by which a wait may exceed a share: changes take time, and who gave up early would mix */
#define SLACK 2
#define POLL_NS 300000ULL
/* before the last one's work ends: better side by side for so long than nobody */
#define HANDOVER_NS 100000ULL
#define PRESENT_NS 3000000ULL /* who has said nothing for so long has left the line */

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/*
 * Whether a neighbour goes first: it stood in line before us and is still there, or its work is on
 * the device.
 */
static int goes_first(const struct vgpu_demand *theirs, const struct vgpu_turn *ours, uint64_t now)
{
	uint64_t until = theirs->until_ns < now + PACE_WINDOW_NS ? theirs->until_ns : 0;
	if (theirs->turn_ns && theirs->turn_ns < ours->since_ns)
		return until + PRESENT_NS > now ||
		       (theirs->wanted_ns <= now && theirs->wanted_ns + PRESENT_NS > now);
	return until > now + HANDOVER_NS;
}

/*
 * Whether a neighbour has time left in which it is waited for: its percentage of all time, what we
 * have waited taken off.
 */
static int has_patience_left(struct neighbour *n, int device, uint64_t now)
{
	struct vgpu_patience *p = n->patience[device];
	if (!p)
		return 0;
	uint64_t asked = p->asked_ns;
	p->asked_ns = 0;
	uint64_t before = p->refilled_ns; /* another thread may have looked at the clock later */
	int64_t left = __atomic_load_n(&p->left_ns, __ATOMIC_RELAXED);
	left = left > -PACE_WINDOW_NS ? left : -PACE_WINDOW_NS;
	left = pace_refill(left, now > before ? now - before : 0,
				   n->claim[device].percent + SLACK);
	uint64_t waited = asked && asked <= now ? least(now - asked, PACE_SLICE_NS) : 0;
	/* while our own work is on the device, nothing is lost */
	if (waited && neighbours_own_demand(device)->until_ns <= now) {
		left -= (int64_t)waited;
		__atomic_add_fetch(&budget_of(device)->lost_ns, waited, __ATOMIC_RELAXED);
	}
	p->refilled_ns = now;
	p->left_ns = left;
	return left > 0;
}

/*
 * How long to wait for the first in line; each neighbour is waited for no longer than it is
 * entitled to the device.
 */
static uint64_t wait_for_others(int device, const struct vgpu_turn *t, uint64_t now)
{
	struct vgpu_demand d, first = {0};
	struct neighbour *whom = NULL;
	int count = neighbours_scan(now);
	for (int i = 0; i < count; i++) {
		struct neighbour *n = neighbours_at(i);
		int wants = n->claim[device].wants && has_patience_left(n, device, now);
		if (!wants || neighbours_read_demand(n, device, &d) || !goes_first(&d, t, now) ||
		    (whom && d.turn_ns >= first.turn_ns))
			continue;
		whom = n;
		first = d;
	}
	if (!whom)
		return 0;
	whom->patience[device]->asked_ns = now;
	return first.until_ns > now + HANDOVER_NS
		       ? least(first.until_ns - now - HANDOVER_NS, POLL_NS)
		       : POLL_NS;
}

/* Our place in the line. How long to save up before we go into it. */
static uint64_t join_line(struct vgpu_turn *t, unsigned percent, int64_t balance, uint64_t queued,
			  uint64_t now)
{
	int64_t turn = FRAME_NS * percent / 100;
	if (t->resting && balance < turn)
		return least(pace_wait(balance - turn, percent), PACE_SLICE_NS);
	t->resting = 0;
	if (!t->since_ns || t->since_ns > now)
		*t = (struct vgpu_turn){.since_ns = now};
	/* it is over: to the end of the line */
	if (t->began_ns && now + queued - t->began_ns > (uint64_t)turn)
		*t = (struct vgpu_turn){.since_ns = now};
	return 0;
}

/*
 * When the container's work on the device ends: the process that had the lease before may still
 * have some there, and what takes longer than it looked is there until it has ended: else those who
 * come then would be beside it, and late in turn.
 */
static uint64_t end_of_work(int device, const struct work_in_flight *f, uint64_t now)
{
	uint64_t until = lease_until(device, now),
		 own = now + (f->ns || !f->spans ? f->ns : 6 * HANDOVER_NS);
	return until > own ? least(until, now + PACE_WINDOW_NS) : own;
}

static uint64_t wait_in_line(struct vgpu_turn *t, int device, unsigned percent, int64_t balance,
			     const struct work_in_flight *f, uint64_t cost, uint64_t now)
{
	struct vgpu_demand *own = neighbours_own_demand(device);
	uint64_t wait = join_line(t, percent, balance, f->ns, now);
	if (!wait && !t->began_ns)
		wait = wait_for_others(device, t, now);
	if (!wait && !t->began_ns)
		t->began_ns = now;
	own->wanted_ns = now;
	own->turn_ns = t->since_ns;
	own->until_ns = end_of_work(device, f, now) + (wait ? 0 : cost);
	neighbours_publish_demand(device);
	return wait;
}

/* Our turn ends here: the balance has to be waited for anyway. */
static void end_turn(struct vgpu_turn *t, int device, const struct work_in_flight *f, uint64_t now)
{
	struct vgpu_demand *own = neighbours_own_demand(device);
	uint64_t until = end_of_work(device, f, now);
	int news = (!t->resting && t->began_ns) || (f->spans && until > own->until_ns);
	if (!t->resting && t->began_ns)
		*t = (struct vgpu_turn){.resting = 1};
	if (!news)
		return;
	own->turn_ns = t->resting ? 0 : own->turn_ns;
	own->until_ns = until;
	neighbours_publish_demand(device);
}

uint64_t turn_queue_wait(int device, unsigned percent, int64_t balance,
			 const struct work_in_flight *f, uint64_t cost, uint64_t now)
{
	uint64_t wait = 0;
	if (!*settings_borrow_path() || !borrow_is_contended(device) || !neighbours_try_lock())
		return 0;
	if (balance < 0)
		end_turn(budget_turn(device), device, f, now);
	else
		wait = wait_in_line(budget_turn(device), device, percent, balance, f, cost, now);
	neighbours_unlock();
	return wait;
}
