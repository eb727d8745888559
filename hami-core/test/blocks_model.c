/* SPDX-License-Identifier: Apache-2.0 */
/* blocks_model.c: see blocks_model.h. What a launch takes the host is an H200's, roughly. */
#include "blocks_model.h"

#include <stdlib.h>

#define STEP_NS 1000ULL
#define SLICE_NS 2000000ULL
#define LAUNCH_NS 3000ULL /* host time */
#define DEPTH 1024        /* launches queued before a launch blocks */
#define RING 4096
#define BLOCKS_TENANTS 4

/*
 * HAMi-core's limiter: a bucket of thread blocks, refilled by a step that follows the measured
 * utilisation.
 */
#define SMS 132
#define THREADS 2048
#define TICK_NS 120000000ULL
#define SAMPLE_NS 167000000ULL
#define POLL_NS 10000000ULL

struct run {
	struct blocks_tenant t;
	uint64_t queue[RING]; /* nanoseconds left of each kernel in the stream */
	unsigned head, tail;
	uint64_t host_ns; /* the program goes on then */
	int launched, waiting;
	uint64_t got_ns, window_ns; /* device time, all and since the last utilisation sample */
	int64_t bucket, step;
};

static struct run *runs;
static int run_count;

static unsigned depth(const struct run *r)
{
	return r->tail - r->head;
}

static void launch_by_blocks(struct run *r, uint64_t now)
{
	if (r->bucket < 0) {
		r->host_ns = now + POLL_NS;
		return;
	}
	r->bucket -= (int64_t)r->t.work.blocks;
	r->queue[r->tail++ % RING] = r->t.work.cost_ns;
	r->launched++;
}

static void host_step(struct run *r, uint64_t now)
{
	if (r->waiting && depth(r))
		return;
	r->waiting = 0;
	while (r->host_ns <= now && depth(r) < DEPTH) {
		int before = r->launched;
		r->host_ns = now + LAUNCH_NS;
		launch_by_blocks(r, now);
		if (r->launched != before && r->t.work.sync_every &&
		    r->launched % r->t.work.sync_every == 0) {
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

static void device_step(struct run *r)
{
	uint64_t left = STEP_NS;
	while (left && depth(r)) {
		uint64_t *kernel = &r->queue[r->head % RING],
			 part = *kernel < left ? *kernel : left;
		*kernel -= part;
		left -= part;
		r->got_ns += part;
		r->window_ns += part;
		r->head += *kernel == 0;
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

static void step(uint64_t now, int *turn, uint64_t *slice)
{
	for (int i = 0; i < run_count; i++)
		host_step(&runs[i], now);
	struct run *r = next_in_turn(turn, slice);
	if (r)
		device_step(r);
}

void blocks_run(const struct blocks_tenant *tenants, int count, int seconds, double *share)
{
	uint64_t before[BLOCKS_TENANTS] = {0}, end = (uint64_t)seconds * 1000000000ULL, slice = 0;
	double utilisation[BLOCKS_TENANTS] = {0};
	int turn = 0;
	runs = calloc((size_t)count, sizeof *runs);
	run_count = count;
	for (int i = 0; i < count; i++)
		runs[i].t = tenants[i];
	for (uint64_t now = STEP_NS; now < end; now += STEP_NS) {
		for (int i = 0; i < count; i++) {
			if (now % SAMPLE_NS == 0) {
				utilisation[i] =
					(double)runs[i].window_ns * 100 / (double)SAMPLE_NS;
				runs[i].window_ns = 0;
			}
			if (now % TICK_NS == 0)
				tick(&runs[i], utilisation[i]);
			if (now == 1000000000ULL)
				before[i] = runs[i].got_ns;
		}
		step(now, &turn, &slice);
	}
	for (int i = 0; i < count; i++)
		share[i] =
			(double)(runs[i].got_ns - before[i]) * 100 / (double)(end - 1000000000ULL);
	free(runs);
}
