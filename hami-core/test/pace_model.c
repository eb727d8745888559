/* SPDX-License-Identifier: Apache-2.0 */
/* pace_model.c: see pace_model.h. Costs of launches and events are those of an H200's driver, roughly. */
#include "pace_model.h"

#include <stdlib.h>
#include <string.h>

#define STEP_NS 1000ULL
#define SLICE_NS 2000000ULL
#define LAUNCH_NS 3000ULL /* host time */
#define DEPTH 1024        /* launches queued before a launch blocks */
#define RING 4096
#define TENANTS 4

/* HAMi-core's limiter: a bucket of thread blocks, refilled by a step that follows the measured utilisation. */
#define SMS 132
#define THREADS 2048
#define TICK_NS 120000000ULL
#define SAMPLE_NS 167000000ULL
#define POLL_NS 10000000ULL

struct item { /* in a stream: a kernel, or an event (no work) */
	uint64_t left_ns;
	int event; /* 1 mid, 2 end, 3 start */
};

struct run {
	struct tenant t;
	struct item queue[RING];
	unsigned head, tail;
	uint64_t host_ns; /* the program goes on then */
	int launched, waiting;
	uint64_t got_ns, window_ns; /* device time, all and since the last utilisation sample */
	/* the time limiter */
	int64_t balance;
	uint64_t refilled_ns, queued, sum, size;
	struct pace_line line;
	struct pace_cost cost;
	uint32_t seed;
	int open, batches, n;
	uint64_t marks[3][RING]; /* start, mid, end times of batches */
	uint64_t paid[RING], predicted[RING], busy_then[RING];
	int fresh[RING];
	unsigned first, next;
	/* the block limiter */
	int64_t bucket, step;
};

static struct run *runs;
static int run_count;

static unsigned depth(const struct run *r)
{
	return r->tail - r->head;
}

static void push(struct run *r, uint64_t work, int event)
{
	r->queue[r->tail++ % RING] = (struct item){work, event};
}

static void harvest(struct run *r)
{
	for (; r->first < r->next && r->marks[2][r->first % RING]; r->first++) {
		unsigned i = r->first % RING, before = (r->first - 1) % RING;
		uint64_t start = r->fresh[i] ? r->marks[0][i] : r->marks[2][before];
		uint64_t busy = pace_take(&r->line, start, r->marks[2][i], r->busy_then[i]);
		pace_cost_sample(&r->cost, pace_sample(r->marks[2][i] - r->marks[1][i], 0));
		uint64_t charge = pace_charge(busy, r->predicted[i], r->paid[i]);
		r->balance += (int64_t)(r->paid[i] - charge);
		r->queued -= r->paid[i];
	}
}

/* 0: may open a batch now; else when to look again. */
static uint64_t hold(struct run *r, uint64_t now)
{
	harvest(r);
	r->balance = pace_refill(r->balance, now - r->refilled_ns, r->t.percent);
	r->refilled_ns = now;
	uint64_t wait = pace_wait(r->balance, r->t.percent);
	if (!wait)
		wait = pace_ahead(r->queued, r->next - r->first);
	return wait > PACE_SLICE_NS ? PACE_SLICE_NS : wait;
}

static void launch_timed(struct run *r, uint64_t now)
{
	unsigned i = r->next % RING;
	uint64_t cost = pace_cost_is_new(&r->cost) ? 0 : pace_cost_estimate(&r->cost);
	if (!r->open) {
		uint64_t wait = hold(r, now);
		if (wait) {
			r->host_ns = now + wait + 60000; /* a sleep ends late */
			return;
		}
		r->open = 1;
		r->sum = 0;
		r->size = pace_batch(&r->seed);
		r->fresh[i] = r->first == r->next || depth(r) == 0;
		r->marks[0][i] = r->marks[1][i] = r->marks[2][i] = 0;
		if (r->fresh[i])
			push(r, 0, 3);
	}
	r->sum += cost ? cost : PACE_NEW_NS;
	int ends = !cost || r->sum >= r->size;
	if (ends)
		push(r, 0, 1);
	push(r, r->t.work.cost_ns, 0);
	if (ends) {
		push(r, 0, 2);
		r->predicted[i] = cost ? r->sum : PACE_UNKNOWN;
		r->paid[i] = r->sum;
		r->busy_then[i] = r->line.busy;
		r->balance -= (int64_t)r->sum;
		r->queued += r->sum;
		r->next++;
		r->open = 0;
	}
	r->launched++;
}

static void launch_by_blocks(struct run *r, uint64_t now)
{
	if (r->bucket < 0) {
		r->host_ns = now + POLL_NS;
		return;
	}
	r->bucket -= (int64_t)r->t.work.blocks;
	push(r, r->t.work.cost_ns, 0);
	r->launched++;
}

static void host_step(enum limiter limiter, struct run *r, uint64_t now)
{
	if (r->waiting && depth(r))
		return;
	r->waiting = 0;
	while (r->host_ns <= now && depth(r) < DEPTH) {
		int before = r->launched;
		r->host_ns = now + LAUNCH_NS;
		if (limiter == LIMITER_TIME)
			launch_timed(r, now);
		else
			launch_by_blocks(r, now);
		if (r->launched != before && r->t.work.sync_every && r->launched % r->t.work.sync_every == 0) {
			r->waiting = 1;
			return;
		}
	}
}

/* Every 120 ms: the step moves by SM^2 * threads * difference / 2560, faster when far away. */
static void tick(struct run *r, double utilisation)
{
	int64_t limit = r->t.percent, pool = SMS * THREADS * 32LL;
	int64_t off = limit - (int64_t)utilisation, size = off < 0 ? -off : off;
	int64_t by = (int64_t)SMS * SMS * THREADS * size / 2560;
	if (size > limit / 2)
		by = by * size * 2 / (limit + 1);
	r->step = off > 0 ? r->step + by : r->step - by;
	r->step = r->step < 0 ? 0 : r->step > pool ? pool : r->step;
	r->bucket = r->bucket + r->step > pool ? pool : r->bucket + r->step;
}

/* Works off events at the head, then one step of the kernel there. */
static void device_step(struct run *r, uint64_t now)
{
	uint64_t left = STEP_NS;
	while (depth(r)) {
		struct item *it = &r->queue[r->head % RING];
		if (it->event) {
			unsigned i = r->next; /* the batch this event belongs to: the oldest one that lacks it */
			for (unsigned k = r->first; k <= i; k++) {
				uint64_t *m = &r->marks[it->event == 3 ? 0 : it->event][k % RING];
				if (!*m && (it->event != 3 || r->fresh[k % RING])) {
					*m = now + STEP_NS - left;
					break;
				}
			}
			r->head++;
			continue;
		}
		uint64_t part = it->left_ns < left ? it->left_ns : left;
		it->left_ns -= part;
		left -= part;
		r->got_ns += part;
		r->window_ns += part;
		if (it->left_ns)
			return;
		r->head++;
		if (!left)
			return;
	}
}

static struct run *next_in_turn(int *turn, uint64_t *slice)
{
	struct run *r = &runs[*turn];
	if (depth(r) && *slice) {
		*slice -= STEP_NS;
		return r;
	}
	for (int k = 1; k <= run_count; k++) {
		int i = (*turn + k) % run_count;
		if (depth(&runs[i])) {
			*turn = i;
			*slice = SLICE_NS - STEP_NS;
			return &runs[i];
		}
	}
	return NULL;
}

static void step(enum limiter limiter, uint64_t now, int *turn, uint64_t *slice)
{
	for (int i = 0; i < run_count; i++)
		if (now >= runs[i].t.starts_ns)
			host_step(limiter, &runs[i], now);
	struct run *r = next_in_turn(turn, slice);
	if (r)
		device_step(r, now);
}

void model_run(enum limiter limiter, const struct tenant *tenants, int count, int seconds, double *share)
{
	uint64_t before[TENANTS] = {0}, end = (uint64_t)seconds * 1000000000ULL, slice = 0;
	double utilisation[TENANTS] = {0};
	int turn = 0;
	runs = calloc((size_t)count, sizeof *runs);
	run_count = count;
	for (int i = 0; i < count; i++) {
		runs[i].t = tenants[i];
		runs[i].seed = (uint32_t)i + 1;
		runs[i].first = runs[i].next = 1;
		runs[i].refilled_ns = tenants[i].starts_ns;
	}
	for (uint64_t now = STEP_NS; now < end; now += STEP_NS) { /* 0 means "not yet" */
		for (int i = 0; i < count; i++) {
			if (now % SAMPLE_NS == 0) {
				utilisation[i] = (double)runs[i].window_ns * 100 / (double)SAMPLE_NS;
				runs[i].window_ns = 0;
			}
			if (limiter == LIMITER_BLOCKS && now % TICK_NS == 0)
				tick(&runs[i], utilisation[i]);
			if (now == 1000000000ULL)
				before[i] = runs[i].got_ns;
		}
		step(limiter, now, &turn, &slice);
	}
	for (int i = 0; i < count; i++)
		share[i] = (double)(runs[i].got_ns - before[i]) * 100 / (double)(end - 1000000000ULL);
	free(runs);
}
