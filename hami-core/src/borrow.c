/* SPDX-License-Identifier: Apache-2.0 */
#include "borrow.h"

#include <string.h>

#include "neighbours.h"
#include "runtime.h"
#include "share.h"

#define STEP_NS 20000000ULL      /* between two looks at what they say */
#define FRESH_NS 200000000ULL    /* who wanted before that is idle */
#define LACKED_NS 2000000000ULL  /* who lacked is left alone for so long: it takes a WINDOW_NS to see it again */
#define WINDOW_NS 200000000ULL   /* to see whether we lack; one may be short of a turn that falls into the next */

struct known { /* about a device */
	unsigned rate; /* 0: nothing yet */
	int contended, modest;
	uint64_t short_ns, wasted_ns; /* what we were short of so far: of our own, and of 9/10 of it while we stood in line */
	uint64_t due_ns, left_ns; /* the next look; when we left the line */
	uint64_t asked_ns, since_ns, spent_ns, lost_ns; /* the last call; the window's start, and the books then */
};
static struct known known[HAMI_DEVICES];

/* A moment that is near, or that cannot be right, counts. */
static int lately(uint64_t then, uint64_t now, uint64_t near)
{
	return then && (then > now || now - then <= near);
}

static void hear(struct neighbour *n, int device, uint64_t now)
{
	struct vgpu_demand d;
	struct pace_claim *c = &n->claim[device];
	c->wants = c->percent != 0;
	c->lacks = 0;
	if (!c->percent || neighbours_hear(n, device, &d))
		return;
	c->wants = lately(d.wanted_ns, now, FRESH_NS);
	c->lacks = c->wants && lately(d.lacked_ns, now, LACKED_NS);
}

static unsigned look(struct known *k, int device, unsigned percent, uint64_t now)
{
	struct pace_claim claim[NEIGHBOURS];
	int count = neighbours_scan(now), contended = 0;
	for (int i = 0; i < count; i++) {
		hear(neighbours_at(i), device, now);
		claim[i] = neighbours_at(i)->claim[device];
		contended |= claim[i].wants;
	}
	contended &= !k->modest && !lately(k->left_ns, now, LACKED_NS);
	__atomic_store_n(&k->contended, contended, __ATOMIC_RELAXED);
	if (count < 0 || runtime_policy() == POLICY_FORCE)
		return percent;
	return pace_rate(percent, runtime_priority(), claim, (unsigned)count);
}

static uint64_t grown(uint64_t sum, uint64_t due, uint64_t had)
{
	return sum + due > had ? sum + due - had : 0;
}

/*
 * What became of the last window. We lack when others had the device while we had work for it, and we got less than is
 * guaranteed; we are modest when there was much less work than that.
 */
static void watch(struct known *k, int device, unsigned percent, uint64_t now)
{
	const struct vgpu_pace *b = share_books(device);
	uint64_t spent = __atomic_load_n(&b->spent_ns, __ATOMIC_RELAXED), lost = __atomic_load_n(&b->lost_ns, __ATOMIC_RELAXED);
	uint64_t elapsed = now - k->since_ns, due = elapsed / 100 * percent, had = spent - k->spent_ns, wanted = had + lost - k->lost_ns;
	int whole = k->since_ns && now - k->asked_ns < STEP_NS * 3;
	if (whole && elapsed < WINDOW_NS)
		return;
	int wants = whole && wanted >= due;
	k->short_ns = wants ? grown(k->short_ns, due, had) : 0;
	k->wasted_ns = wants && k->contended ? grown(k->wasted_ns, due - due / 10, had) : 0;
	if (k->short_ns > due / 3)
		neighbours_own(device)->lacked_ns = now;
	if (k->wasted_ns > due / 4) { /* it is no use to stand in line */
		k->left_ns = now;
		k->wasted_ns = 0;
	}
	k->modest = !whole || wanted < due / 3 * 2;
	k->since_ns = now;
	k->spent_ns = spent;
	k->lost_ns = lost;
}

unsigned borrow_rate(int device, unsigned percent, uint64_t now)
{
	struct known *k = &known[device];
	if (!*runtime_borrow())
		return percent;
	if (now >= __atomic_load_n(&k->due_ns, __ATOMIC_RELAXED) && neighbours_enter()) {
		watch(k, device, percent, now);
		k->asked_ns = now;
		neighbours_own(device)->wanted_ns = now;
		neighbours_tell(device);
		__atomic_store_n(&k->rate, look(k, device, percent, now), __ATOMIC_RELAXED);
		__atomic_store_n(&k->due_ns, now + STEP_NS, __ATOMIC_RELAXED);
		neighbours_leave();
	}
	unsigned rate = __atomic_load_n(&k->rate, __ATOMIC_RELAXED);
	return rate > percent && rate <= 100 ? rate : percent;
}

int borrow_contended(int device)
{
	return __atomic_load_n(&known[device].contended, __ATOMIC_RELAXED);
}

void borrow_after_fork(void)
{
	memset(known, 0, sizeof known);
	neighbours_after_fork();
}
