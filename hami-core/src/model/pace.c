/* SPDX-License-Identifier: Apache-2.0 */
#include "model/pace.h"

#define COST_WINDOW 16      /* samples after which an old minimum is forgotten */
#define COST_FIRST 3        /* samples before an average means anything */
/* a part of the sample that may be the host's or the kernel's and does not matter */
#define COST_SURE 16
#define COST_LATE_NS 1000ULL /* what an undisturbed launch varies by */
#define COST_SLACK_NS 5000ULL /* what the events themselves vary by */
#define AHEAD_STEP_NS 1000000ULL
#define AHEAD_LEAST_NS 100000ULL

int64_t pace_refill(int64_t balance, uint64_t elapsed, unsigned percent)
{
	int64_t most = PACE_WINDOW_NS * percent / 100;
	if (balance > most)
		return most;
	uint64_t room = (uint64_t)(most - balance);
	/* a day of idleness must not overflow */
	uint64_t gain = elapsed / 100 > room ? room : elapsed * percent / 100;
	return gain >= room ? most : balance + (int64_t)gain;
}

uint64_t pace_wait(int64_t balance, unsigned percent)
{
	if (balance >= 0 || !percent)
		return 0;
	uint64_t debt = (uint64_t)-balance;
	return debt > UINT64_MAX / 200 ? UINT64_MAX / 2 : (debt * 100 + percent - 1) / percent;
}

uint64_t pace_queue_wait(uint64_t queued, unsigned batches)
{
	/* one long kernel may run while the next is queued */
	if (batches < 2 || queued <= PACE_AHEAD_NS)
		return 0;
	uint64_t over = queued - PACE_AHEAD_NS;
	return over > AHEAD_STEP_NS ? AHEAD_STEP_NS : over < AHEAD_LEAST_NS ? AHEAD_LEAST_NS : over;
}

unsigned pace_rate(unsigned percent, int priority, const struct pace_claim *others, unsigned count)
{
	unsigned long wanted = percent, equals = percent;
	for (unsigned i = 0; i < count; i++) {
		if (others[i].lacks || (others[i].wants && others[i].priority < priority))
			return percent;
		wanted += others[i].wants ? others[i].percent : 0;
		equals += others[i].wants && others[i].priority == priority ? others[i].percent : 0;
	}
	if (wanted >= 100 || !percent)
		return percent;
	return percent + (unsigned)((100 - wanted) * percent / equals);
}

uint64_t pace_batch_size(uint32_t *seed)
{
	/* Numerical Recipes' generator: quality does not matter here */
	*seed = *seed * 1664525u + 1013904223u;
	return PACE_BATCH_NS / 4 + (*seed >> 8) % (PACE_BATCH_NS * 3 / 2);
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The average moves an eighth of the way. */
static uint64_t move_average(uint64_t from, uint64_t to)
{
	return to > from ? from + (to - from) / 8 : from - (from - to) / 8;
}

uint64_t pace_sample(uint64_t elapsed, uint64_t late)
{
	return late > elapsed / 2 ? elapsed - elapsed / 2 : elapsed - late;
}

/*
 * A sample above half as much again as the smallest, or a mean above a quarter, holds time of
 * another tenant.
 */
static uint64_t outlier_bound(uint64_t best, uint64_t part)
{
	return best + best / part + COST_SLACK_NS;
}

/*
 * Whether the host was held up too long for the sample to mean anything. As many in a row as a
 * window has mean that it is slower now.
 */
static int note_if_doubtful(struct pace_cost *c, uint64_t elapsed, uint64_t late)
{
	if (!c->samples || late <= elapsed / COST_SURE ||
	    late <= c->late + c->late / 4 + COST_LATE_NS) {
		c->doubted = 0;
		return 0;
	}
	c->doubt = c->doubted ? smaller(c->doubt, late) : late;
	if (++c->doubted == COST_WINDOW) {
		c->late = c->doubt;
		c->doubted = 0;
	}
	return 1;
}

/* Whether the sample is so much surer than all before it that they count no more. */
static int is_surer_sample(const struct pace_cost *c, uint64_t late)
{
	return c->samples && c->late > c->best / COST_SURE && late + COST_LATE_NS < c->late / 2;
}

void pace_cost_sample(struct pace_cost *c, uint64_t elapsed, uint64_t late)
{
	if (note_if_doubtful(c, elapsed, late))
		return;
	uint64_t sample = pace_sample(elapsed, late);
	if (!sample)
		sample = 1;
	if (!c->samples || is_surer_sample(c, late))
		*c = (struct pace_cost){.samples = c->samples,
					.best = sample,
					.next = UINT64_MAX,
					.usual = sample,
					.mean = sample,
					.late = late};
	c->late = smaller(c->late, late);
	c->samples = c->samples == UINT32_MAX ? COST_FIRST + 1 : c->samples + 1;
	c->best = smaller(c->best, sample);
	c->next = smaller(c->next, sample);
	if (c->samples % COST_WINDOW == 0) {
		c->best = c->next;
		c->next = UINT64_MAX;
	}
	if (c->samples <= COST_FIRST) { /* the first may have loaded code */
		c->usual = c->mean = c->best;
		return;
	}
	c->mean = move_average(c->mean, sample);
	if (sample <= outlier_bound(c->best, 2))
		c->usual = move_average(c->usual, sample);
	if (c->usual < c->best)
		c->usual = c->best;
}

int pace_cost_varies(const struct pace_cost *c)
{
	return c->mean > outlier_bound(c->best, 4);
}

uint64_t pace_cost_estimate(const struct pace_cost *c)
{
	return pace_cost_varies(c) ? c->mean : c->usual;
}

int pace_cost_is_new(const struct pace_cost *c)
{
	return c->samples < COST_FIRST;
}

uint64_t pace_settle(struct pace_line *line, uint64_t busy, uint64_t end, uint64_t others,
		     uint64_t charge, uint64_t in_flight)
{
	uint64_t from = busy > line->busy_until ? busy : line->busy_until;
	if (end > from) {
		line->owed += end - from > others ? end - from - others : 0;
		line->busy_until = end;
	}
	line->owed -= smaller(line->owed, charge);
	uint64_t more = line->owed > in_flight ? line->owed - in_flight : 0;
	line->owed -= more;
	return more;
}

/* The part of a piece's charge that lies in [start, end]. */
static double charge_within(uint64_t from, uint64_t to, uint64_t charge, uint64_t start,
			    uint64_t end)
{
	uint64_t first = from > start ? from : start, last = to < end ? to : end;
	return last > first ? (double)charge * (double)(last - first) / (double)(to - from) : 0;
}

uint64_t pace_uncharged(const struct pace_line *line, uint64_t start, uint64_t end,
			uint64_t charged_then)
{
	if (end <= start)
		return 0;
	uint64_t oldest = line->settled > PACE_PIECES ? line->settled - PACE_PIECES : 0;
	uint64_t known = oldest ? line->piece[oldest % PACE_PIECES].before : 0;
	double others = known > charged_then ? (double)(known - charged_then) : 0;
	uint64_t first = line->settled;
	while (first > oldest && line->piece[(first - 1) % PACE_PIECES].before >= charged_then)
		first--;
	for (uint64_t n = first; n < line->settled; n++) {
		unsigned i = n % PACE_PIECES;
		others += charge_within(line->piece[i].start, line->piece[i].end,
					line->piece[i].charge, start, end);
	}
	return others < (double)(end - start) ? end - start - (uint64_t)others : 0;
}

void pace_note_charge(struct pace_line *line, uint64_t start, uint64_t end, uint64_t charge)
{
	unsigned i = line->settled % PACE_PIECES;
	if (end <= start)
		return;
	line->piece[i].start = start;
	line->piece[i].end = end;
	line->piece[i].charge = charge;
	line->piece[i].before = line->charged;
	line->charged += charge;
	line->latest = end > line->latest ? end : line->latest;
	line->settled++;
}
