/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pace.h: the arithmetic of the compute limit: how much GPU time there is, what work costs,
 * how long to wait. No clock, no CUDA, no shared state; everything in nanoseconds.
 *
 * A container may use `percent` of the time of a device. Its balance grows with the time that
 * passes and shrinks by the GPU time its work took. Work is launched while the balance is not
 * negative. Launches come in batches of about PACE_BATCH_NS; a batch is paid by estimate when
 * it is launched and settled when it has been measured.
 */
#ifndef PACE_H
#define PACE_H

#include <stdint.h>

#define PACE_WINDOW_NS 100000000LL /* what is not used for longer than this is lost */
/* GPU time between two checkpoints: 2 driver calls a millisecond */
#define PACE_BATCH_NS 1000000ULL
#define PACE_AHEAD_NS 4000000ULL   /* work queued on the device; more makes every decision late */
#define PACE_SLICE_NS 5000000ULL   /* longest sleep, so that a change of policy is seen */

/* paid for what has never been measured, until it is: else a start is unbounded */
#define PACE_NEW_NS 250000ULL

/* The balance after `elapsed`. Never more than a window's worth; a debt is kept. */
int64_t pace_refill(int64_t balance, uint64_t elapsed, unsigned percent);

/* How long until the balance is no longer negative. 0: launch. */
uint64_t pace_wait(int64_t balance, unsigned percent);

/*
 * How long to wait for queued work before queueing more; `batches` are queued, of this much work.
 * 0: launch.
 */
uint64_t pace_queue_wait(uint64_t queued, unsigned batches);

/* What a container says, or is entitled to, on a device that it shares. */
struct pace_claim {
	unsigned percent; /* guaranteed, 1 to 100 */
	int priority;     /* 0 is the highest */
	int wants;        /* has had work lately */
	int lacks;        /* gets less than its guarantee */
};

/*
 * Percent of the device that a container may use now: its own, and its part of what nobody who
 * wants to work is guaranteed, by guarantees among the wanting of the highest priority. Never less
 * than its own, never above 100; its own alone while anybody lacks.
 */
unsigned pace_rate(unsigned percent, int priority, const struct pace_claim *others, unsigned count);

/*
 * Size of the next batch: from a quarter of PACE_BATCH_NS to seven quarters, so that a program's
 * own period does not meet ours. Only the last launch of a batch is measured by itself. So each
 * launch of a loop has to be the last one now and then, a short one between two long ones, too.
 */
uint64_t pace_batch_size(uint32_t *seed);

/* What one kernel (or graph) costs, learnt from event pairs around single launches. */
struct pace_cost {
	uint32_t samples;
	uint64_t best, next; /* smallest sample of the window before and of the current one */
	uint64_t usual;      /* moving average of samples that nobody seems to have interrupted */
	uint64_t mean;       /* moving average of all samples */
	uint64_t late;       /* what the host takes for a launch when nothing holds it up */
	uint64_t doubt;      /* the least that it took in those samples that were left out since */
	uint32_t doubted;    /* how many in a row */
};

/*
 * Adds a sample: what two events around a launch say, and `late`, the host's time for it if the
 * device stood idle before it. The kernel began somewhere within that time: where it is long,
 * beside the kernel and beside what is usual, the host was held up, nobody knows on which side of
 * the start, and the sample says nothing. It is left out, unless there are no others; what was
 * learnt from such is forgotten at the first that is better.
 *
 * While another tenant is on the device, some samples contain its work (time slices of about 2 ms,
 * or less): those more than half as long again as the smallest are left out, and when the mean of
 * all is a quarter longer, the smallest counts: samples that are disturbed a little would still add
 * up. That cannot be told from a kernel whose cost varies; the estimate is never below 2/5 of the
 * mean of all samples.
 */
void pace_cost_sample(struct pace_cost *cost, uint64_t elapsed, uint64_t late);
/* 0: not known yet, measure it. */
uint64_t pace_cost_estimate(const struct pace_cost *cost);
/* Whether its samples lie so far apart that the smallest counts. */
int pace_cost_varies(const struct pace_cost *cost);
/* Whether to measure at the next opportunity: the first launches of a kernel load code. */
int pace_cost_is_new(const struct pace_cost *cost);

#define PACE_UNKNOWN UINT64_MAX

/*
 * A sample from what two events around a launch say. When the device stood idle before it, the time
 * the host took to launch (`late`, else 0) lies between them, too. Never less than half: this is an
 * estimate, and a tenant gains by it. What the events cost is left in: 1 to 2 us, about as much as
 * the device pauses between two kernels.
 */
uint64_t pace_sample(uint64_t elapsed, uint64_t late);

#define PACE_PIECES 64

/* The time line of a context: which times the batches were charged for that were settled last. */
struct pace_line {
	uint64_t settled; /* so many were */
	uint64_t charged; /* for all of them */
	uint64_t latest;  /* where the line ends */
	uint64_t busy_until, owed; /* of pace_settle */
	struct {
		uint64_t start, end, charge;
		uint64_t before; /* what `charged` was then */
	} piece[PACE_PIECES]; /* the last ones, by number */
};

/*
 * The part of [start, end] that nothing was charged for yet, by those batches of other threads and
 * streams that overlap it. `charged_then` is line->charged when this batch began: those that were
 * settled before had ended. A charge is taken to lie evenly in its batch's time, and wholly in this
 * one where the batch is too long ago to be looked up.
 */
uint64_t pace_uncharged(const struct pace_line *line, uint64_t start, uint64_t end,
			uint64_t charged_then);

/*
 * What to charge in addition to `charge` for a batch for which the device worked throughout
 * [busy, end], but for what `others` had of it. That time is owed until batches are charged for it.
 * Batches of several threads lie on each other, so it may be the work of those that are in flight,
 * for which `in_flight` is paid. Never more than that is owed: what takes longer than it is thought
 * to is charged.
 */
uint64_t pace_settle(struct pace_line *line, uint64_t busy, uint64_t end, uint64_t others,
		     uint64_t charge, uint64_t in_flight);

/* Notes what [start, end] was charged for. */
void pace_note_charge(struct pace_line *line, uint64_t start, uint64_t end, uint64_t charge);

#endif
