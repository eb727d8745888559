/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_timeline.h"

#include <stdlib.h>

#include "cuda_fake.h"
#include "mig.h"

#define SLICE_NS 2000000ULL
#define FIRST_TICKET 1 /* 0 is no ticket */

static uint64_t switch_cost(void)
{
	static uint64_t ns = UINT64_MAX;
	if (ns == UINT64_MAX) {
		const char *text = getenv("FAKEGPU_SWITCH_US");
		ns = text ? strtoull(text, NULL, 10) * 1000 : 0;
	}
	return ns;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The next place with work, the one whose turn it is last; -1: there is none. */
static int next_place(const struct fg_turns *t)
{
	for (int i = 1; i <= FG_PLACES; i++)
		if (t->left[(t->turn + i) % FG_PLACES])
			return (t->turn + i) % FG_PLACES;
	return -1;
}

/* Goes on to where something changes, at most to `to`. The nanoseconds of work that t->turn had. */
static uint64_t step(struct fg_turns *t, uint64_t to)
{
	int next = next_place(t);
	if (next < 0) {
		t->now_ns = to;
		return 0;
	}
	if (!t->left[t->turn] || !t->slice_ns) {
		t->switch_ns = next == t->turn ? 0 : switch_cost();
		t->slice_ns = SLICE_NS;
		t->turn = next;
	}
	uint64_t room = to - t->now_ns;
	if (t->switch_ns) {
		room = least(room, t->switch_ns);
		t->switch_ns -= room;
		t->now_ns += room;
		return 0;
	}
	uint64_t work = least(room, least(t->left[t->turn], t->slice_ns));
	t->left[t->turn] -= work;
	t->slice_ns -= work;
	t->now_ns += work;
	return work;
}

static void note(struct fg_lane *l, uint64_t to, uint64_t work)
{
	unsigned last = (unsigned)((l->segments - 1) % FG_SEGMENTS);
	l->done += work;
	if (!l->segments || l->segment[last].to_ns != to - work) {
		last = (unsigned)(l->segments++ % FG_SEGMENTS);
		l->segment[last].from_ns = to - work;
	}
	l->segment[last].to_ns = to;
	l->segment[last].done = l->done;
}

/* This process's time line of a device, come to now. NULL in real time. */
static struct fg_timeline *line_of(int minor)
{
	if (fg_clock_place() < 0)
		return NULL;
	struct fg_timeline *l = &fg_clock_timelines()[minor];
	struct fg_turns *t = &l->turns;
	uint64_t now = fg_clock_now();
	while (t->now_ns < now) {
		uint64_t work = step(t, now);
		if (work)
			note(&l->lane[t->turn], t->now_ns, work);
	}
	return l;
}

static struct fg_lane *lane_of(struct fg_timeline *l)
{
	return &l->lane[fg_clock_place()];
}

/* When this process will have had so much work done, if nobody queues more. */
static uint64_t expect(const struct fg_timeline *l, uint64_t amount)
{
	struct fg_turns t = l->turns;
	int me = fg_clock_place();
	uint64_t queued = l->lane[me].done + t.left[me];
	while (t.left[me] && queued - t.left[me] < amount) {
		uint64_t most = amount - (queued - t.left[me]);
		step(&t, t.now_ns + most);
	}
	return t.now_ns;
}

/*
 * In real time: when what is queued on the device ends, or on the instance that this process runs
 * on instead. On a clock of its own the instances of a device share its time.
 */
static uint64_t *busy_until(int minor)
{
	uint64_t serial = fake.count ? fake.gpu[0]->gi_serial : 0;
	struct fg_gi *gi = serial ? fg_gi_by_serial(minor, serial) : NULL;
	return gi ? &gi->busy_until_ns : &fg_state()->device[minor].busy_until_ns;
}

uint64_t fg_timeline_add(int minor, uint64_t after, uint64_t ns)
{
	struct fg_device_state *d = &fg_state()->device[minor];
	struct fg_timeline *l = line_of(minor);
	d->busy_total_ns += ns;
	if (l) {
		uint64_t *left = &l->turns.left[fg_clock_place()];
		*left += ns;
		return lane_of(l)->done + *left + FIRST_TICKET;
	}
	uint64_t start = fg_clock_now(), *until = busy_until(minor);
	start = start > *until ? start : *until;
	start = start > after ? start : after;
	if (ns)
		*until = start + ns;
	return start + ns;
}

uint64_t fg_timeline_end(int minor)
{
	struct fg_timeline *l = line_of(minor);
	if (l)
		return lane_of(l)->done + l->turns.left[fg_clock_place()] + FIRST_TICKET;
	return *busy_until(minor);
}

uint64_t fg_timeline_slice(int minor)
{
	struct fg_timeline *l = line_of(minor);
	uint64_t left = l->turns.left[fg_clock_place()];
	/* it is on the device when it comes a nanosecond further */
	return lane_of(l)->done + (left ? 1 : 0) + FIRST_TICKET;
}

int fg_timeline_passed(int minor, uint64_t ticket)
{
	struct fg_timeline *l = line_of(minor);
	return l ? lane_of(l)->done + FIRST_TICKET >= ticket : fg_clock_now() >= ticket;
}

void fg_timeline_wait(int minor, uint64_t ticket)
{
	if (fg_clock_place() < 0)
		return fg_clock_sleep_until(ticket);
	/* somebody else may have queued work meanwhile */
	while (!fg_timeline_passed(minor, ticket))
		fg_clock_sleep_until(expect(line_of(minor), ticket - FIRST_TICKET));
}

uint64_t fg_timeline_when(int minor, uint64_t ticket, uint64_t recorded_ns)
{
	struct fg_timeline *l = line_of(minor);
	if (!l)
		return ticket;
	struct fg_lane *me = lane_of(l);
	uint64_t amount = ticket > FIRST_TICKET ? ticket - FIRST_TICKET : 0, at = fg_clock_now();
	uint64_t oldest = me->segments > FG_SEGMENTS ? me->segments - FG_SEGMENTS : 0;
	for (uint64_t n = me->segments; n > oldest; n--) {
		unsigned i = (unsigned)((n - 1) % FG_SEGMENTS);
		if (me->segment[i].done < amount)
			break; /* the one before it is where this was done */
		uint64_t back = me->segment[i].done - amount,
			 length = me->segment[i].to_ns - me->segment[i].from_ns;
		at = me->segment[i].to_ns - least(back, length);
	}
	return at > recorded_ns ? at : recorded_ns;
}

FG_EXPORT uint64_t fakegpu_now(void);
FG_EXPORT void fakegpu_sleep_until(uint64_t ns);
FG_EXPORT uint64_t fakegpu_had(int minor, int place);
FG_EXPORT void fakegpu_expect_heir(void);
FG_EXPORT void fakegpu_leave(void);

/*
 * For test builds of what is under test, and their programs: this clock, what a device has done for
 * the processes at a place of it, and how a process hands its place to the next one.
 */
uint64_t fakegpu_now(void)
{
	return fg_clock_now();
}

void fakegpu_sleep_until(uint64_t ns)
{
	fg_clock_sleep_until(ns);
}

uint64_t fakegpu_had(int minor, int place)
{
	struct fg_timeline *l = line_of(minor);
	return l && place >= 0 && place < FG_PLACES ? l->lane[place].done : 0;
}

void fakegpu_expect_heir(void)
{
	fg_clock_expect_heir();
}

void fakegpu_leave(void)
{
	fg_clock_leave();
}
