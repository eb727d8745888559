/* SPDX-License-Identifier: Apache-2.0 */
#include "model/preempt.h"

#define LATE_NS 100000 /* a mark that takes longer has waited for others */
#define WINDOW_NS 500000000ULL /* the two clocks drift: what is older says nothing about them */

/*
 * How far the device's time is ahead of the host's, at least; a mark that is passed at once says it
 * best.
 */
static void compare_clocks(struct preempt *x, uint64_t marked_ns, int64_t ahead)
{
	if (!x->window_ns || marked_ns - x->window_ns > 2 * WINDOW_NS) {
		x->offset = x->next = ahead;
		x->window_ns = marked_ns;
	} else if (marked_ns - x->window_ns > WINDOW_NS) {
		x->offset = x->next;
		x->next = ahead;
		x->window_ns = marked_ns;
	}
	x->next = ahead < x->next ? ahead : x->next;
	x->offset = ahead < x->offset ? ahead : x->offset;
}

void preempt_note(struct preempt *x, uint64_t marked_ns, uint64_t sent_ns, uint64_t at, int ended)
{
	compare_clocks(x, marked_ns, (int64_t)(at - marked_ns));
	uint64_t asked = sent_ns + (uint64_t)x->offset;
	if (at > asked + LATE_NS && !ended) {
		unsigned i = x->pieces++ % PREEMPT_PIECES;
		/* it began before we asked */
		x->piece[i].from =
			x->on_ns && x->on_ns < asked ? asked - (asked - x->on_ns) / 2 : asked;
		x->piece[i].to = at;
	}
	x->on_ns = at;
}

uint64_t preempt_time_between(const struct preempt *x, uint64_t from, uint64_t to)
{
	uint64_t oldest = x->pieces > PREEMPT_PIECES ? x->pieces - PREEMPT_PIECES : 0, sum = 0;
	for (uint64_t n = oldest; n < x->pieces; n++) {
		uint64_t first = x->piece[n % PREEMPT_PIECES].from,
			 last = x->piece[n % PREEMPT_PIECES].to;
		/* it ends with the work that it is a part of: not by others' slices */
		if (last + PREEMPT_SAME_NS > to)
			continue;
		first = first > from ? first : from;
		sum += last > first ? last - first : 0;
	}
	uint64_t most = to > from ? (to - from) / 5 * 4 : 0;
	return sum < most ? sum : most;
}
