/* SPDX-License-Identifier: Apache-2.0 */
#include "compute/borrow.h"

#include <string.h>

#include "compute/neighbours.h"
#include "compute/budget.h"
#include "settings/settings.h"

#define STEP_NS 20000000ULL      /* between two looks at what they say */
#define FRESH_NS 200000000ULL    /* who wanted before that is idle */
/* who lacked is left alone for so long: it takes a WINDOW_NS to see it again */
#define LACKED_NS 2000000000ULL
/* to see whether we lack; one may be short of a turn that falls into the next */
#define WINDOW_NS 200000000ULL

/* about a device, from the last look; what the container has seen of it lies in the region */
struct known {
	unsigned rate; /* 0: nothing yet */
	int contended;
	uint64_t due_ns; /* the next look */
};
static struct known known[HAMI_DEVICES];

/* A moment that is near, or that cannot be right, counts. */
static int is_recent_moment(uint64_t then, uint64_t now, uint64_t near)
{
	return then && (then > now || now - then <= near);
}

static void read_claim(struct neighbour *n, int device, uint64_t now)
{
	struct vgpu_demand d;
	struct pace_claim *c = &n->claim[device];
	c->wants = c->percent != 0;
	c->lacks = 0;
	if (!c->percent || neighbours_read_demand(n, device, &d))
		return;
	c->wants = is_recent_moment(d.wanted_ns, now, FRESH_NS);
	c->lacks = c->wants && is_recent_moment(d.lacked_ns, now, LACKED_NS);
}

static unsigned update_rate(struct known *k, int device, unsigned percent, uint64_t now)
{
	const struct vgpu_watch *w = &budget_common(device)->watch;
	struct pace_claim claim[NEIGHBOURS];
	int count = neighbours_scan(now), contended = 0;
	for (int i = 0; i < count; i++) {
		read_claim(neighbours_at(i), device, now);
		claim[i] = neighbours_at(i)->claim[device];
		contended |= claim[i].wants;
	}
	contended &= !word_get(&w->modest) &&
		     !is_recent_moment(budget_clamp_moment(&w->left_ns, now), now, LACKED_NS);
	__atomic_store_n(&k->contended, contended, __ATOMIC_RELAXED);
	if (count < 0 || settings_policy() == POLICY_FORCE)
		return percent;
	return pace_rate(percent, settings_priority(), claim, (unsigned)count);
}

static uint64_t add_shortfall(const uint64_t *before, uint64_t due, uint64_t had)
{
	uint64_t sum = budget_clamp_duration(before, BUDGET_LONGEST_NS);
	return sum + due > had ? sum + due - had : 0;
}

/*
 * What became of the last window. We lack when others had the device while we had work for it, and
 * we got less than is guaranteed; we are modest when there was much less work than that.
 */
static void judge_window(struct vgpu_watch *w, int device, unsigned percent, int contended,
			 uint64_t now)
{
	const struct vgpu_pace *b = budget_of(device);
	uint64_t spent = word_get(&b->spent_ns), lost = word_get(&b->lost_ns);
	uint64_t since = budget_clamp_moment(&w->since_ns, now), elapsed = now - since,
		 due = elapsed / 100 * percent;
	uint64_t had = spent - word_get(&w->spent_ns),
		 wanted = had + lost - word_get(&w->lost_ns);
	uint64_t longest = budget_clamp_duration(&w->longest_ns, BUDGET_LONGEST_NS),
		 asked = budget_clamp_moment(&w->asked_ns, now);
	int whole = since && is_recent_moment(asked, now, STEP_NS * 3 + 4 * longest);
	if (whole && elapsed < WINDOW_NS)
		return;
	int wants = whole && wanted >= due;
	uint64_t lacking = wants ? add_shortfall(&w->short_ns, due, had) : 0;
	uint64_t wasted = 0;
	if (wants && contended)
		wasted = add_shortfall(&w->wasted_ns, due - due / 10, had);
	if (lacking > due / 3 + longest)
		word_set(&neighbours_own_demand(device)->lacked_ns, now);
	if (wasted > due / 4 + 2 * longest) { /* it is no use to stand in line */
		word_set(&w->left_ns, now);
		wasted = 0;
	}
	word_set(&w->short_ns, lacking);
	word_set(&w->wasted_ns, wasted);
	word_set(&w->longest_ns, longest - longest / 8);
	word_set(&w->modest, !whole || wanted + longest < due / 3 * 2);
	word_set(&w->since_ns, now);
	word_set(&w->spent_ns, spent);
	word_set(&w->lost_ns, lost);
}

unsigned borrow_rate(int device, unsigned percent, uint64_t now)
{
	struct known *k = &known[device];
	if (!*settings_borrow_path())
		return percent;
	if (now >= __atomic_load_n(&k->due_ns, __ATOMIC_RELAXED) && neighbours_try_lock()) {
		struct vgpu_watch *w = &budget_common(device)->watch;
		judge_window(w, device, percent, k->contended, now);
		word_set(&w->asked_ns, now);
		word_set(&neighbours_own_demand(device)->wanted_ns, now);
		neighbours_publish_demand(device);
		__atomic_store_n(&k->rate, update_rate(k, device, percent, now), __ATOMIC_RELAXED);
		__atomic_store_n(&k->due_ns, now + STEP_NS, __ATOMIC_RELAXED);
		neighbours_unlock();
	}
	unsigned rate = __atomic_load_n(&k->rate, __ATOMIC_RELAXED);
	return rate > percent && rate <= 100 ? rate : percent;
}

int borrow_is_contended(int device)
{
	return __atomic_load_n(&known[device].contended, __ATOMIC_RELAXED);
}

void borrow_after_fork(void)
{
	memset(known, 0, sizeof known);
	neighbours_after_fork();
}
