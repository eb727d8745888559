/* SPDX-License-Identifier: Apache-2.0 */
#include "model/preempt.h"

#define DOUBT_NS 30000 /* a mark that takes longer may have waited for others */
#define LATE_NS 100000 /* one that takes longer has */
#define CLOSE_NS 500000 /* marks no further apart leave no time slice unseen */
#define SHARED_NS 300000000ULL
#define WINDOW_NS 500000000ULL /* the two clocks drift: what is older says nothing about them */

void preempt_compare_clocks(struct preempt *x, uint64_t host_ns, uint64_t at)
{
	/* at least so far it is ahead; what is passed at once says it best */
	int64_t ahead = (int64_t)(at - host_ns);
	if (!x->window_ns || host_ns - x->window_ns > 2 * WINDOW_NS) {
		x->offset = x->next = ahead;
		x->window_ns = host_ns;
	} else if (host_ns - x->window_ns > WINDOW_NS) {
		x->offset = x->next;
		x->next = ahead;
		x->window_ns = host_ns;
	}
	x->next = ahead < x->next ? ahead : x->next;
	x->offset = ahead < x->offset ? ahead : x->offset;
}

uint64_t preempt_device_time(const struct preempt *x, uint64_t host_ns)
{
	return x->window_ns ? host_ns + (uint64_t)x->offset : 0;
}

int preempt_is_shared(const struct preempt *x)
{
	return x->shared_ns && x->on_ns - x->shared_ns < SHARED_NS;
}

/* The device passed marks at both moments: nothing was missed in between if they are near. */
static void note_seen(struct preempt *x, uint64_t asked, uint64_t at)
{
	if (at > x->on_ns && asked < x->on_ns + CLOSE_NS)
		x->seen_ns += at - x->on_ns;
}

void preempt_note(struct preempt *x, uint64_t marked_ns, uint64_t sent_ns, uint64_t at, int ended)
{
	preempt_compare_clocks(x, marked_ns, at);
	uint64_t asked = sent_ns + (uint64_t)x->offset;
	note_seen(x, asked, at);
	if (at > asked + DOUBT_NS) {
		unsigned i = x->pieces++ % PREEMPT_PIECES;
		/* it began before we asked */
		uint64_t slack = x->on_ns && x->on_ns < asked ? (asked - x->on_ns) / 2 : 0;
		x->piece[i].from = asked - slack;
		x->piece[i].to = at;
		x->piece[i].slack = slack;
		x->piece[i].doubtful = (ended && !x->independent) || at <= asked + LATE_NS;
		x->shared_ns = x->piece[i].doubtful ? x->shared_ns : at;
	}
	if (at <= asked + DOUBT_NS)
		x->mark[x->marks++ % PREEMPT_MARKS] = at;
	x->on_ns = at;
}

void preempt_note_kernel(struct preempt *x, uint64_t from, uint64_t to)
{
	for (int i = 0; i < PREEMPT_MARKS && !x->independent; i++)
		x->independent |= x->mark[i] > from + LATE_NS && x->mark[i] + LATE_NS < to;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

struct preempt_sum preempt_time_between(const struct preempt *x, uint64_t from, uint64_t to)
{
	uint64_t oldest = x->pieces > PREEMPT_PIECES ? x->pieces - PREEMPT_PIECES : 0;
	struct preempt_sum sum = {0};
	/* the latest first: each ends when its mark was passed, so those before end earlier */
	for (uint64_t n = x->pieces; n-- > oldest;) {
		unsigned i = n % PREEMPT_PIECES;
		if (x->piece[i].to <= from)
			break;
		uint64_t first = x->piece[i].from > from ? x->piece[i].from : from,
			 last = least(x->piece[i].to, to), ns = last > first ? last - first : 0;
		/* one that ends with the work that it is a part of may be that work's own */
		int last_of_it = x->piece[i].to + PREEMPT_SAME_NS > to;
		if (x->piece[i].doubtful || (last_of_it && !x->independent)) {
			sum.doubtful_ns += ns;
			continue;
		}
		sum.ns += ns;
		sum.slack_ns += first > from ? least(x->piece[i].slack, ns) : 0;
	}
	if (!preempt_is_shared(x))
		sum.doubtful_ns = 0;
	sum.ns = least(sum.ns, to > from ? (to - from) / 5 * 4 : 0);
	return sum;
}
