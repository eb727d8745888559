/* SPDX-License-Identifier: Apache-2.0 */
/*
 * preempt.h: which times of a device others had while work of ours was queued, told from marks that
 * the device passed late. No clock, no CUDA, no shared state; everything in nanoseconds.
 *
 * A kernel longer than a time slice always contains slices of a neighbour that is busy all the
 * time, so that neither its mean nor its smallest time says what it costs. Marks of another stream
 * of the same context are passed while it runs (compute/heartbeat.h).
 */
#ifndef PREEMPT_H
#define PREEMPT_H

#include <stdint.h>

#define PREEMPT_PIECES 128
#define PREEMPT_MARKS 32
/* a mark that is passed when a kernel of ours ends may have waited for that kernel */
#define PREEMPT_SAME_NS 20000ULL

struct preempt {
	/* the context was on the device then; times of the device but where it says otherwise */
	uint64_t on_ns;
	/*
	 * how far the device's time is ahead of the host's: least of the window before, of this one
	 */
	int64_t offset, next;
	uint64_t window_ns; /* where this window began, by the host's clock; 0: there was none */
	uint64_t seen_ns;   /* so much time lay between two marks that were close to each other */
	uint64_t shared_ns; /* others were seen then, last */
	/* marks are passed while a kernel of ours runs: none has waited for one */
	int independent;
	uint64_t marks, mark[PREEMPT_MARKS]; /* so many were passed at once; the last of them */
	uint64_t pieces;    /* so many there were; the last of them: */
	struct {
		uint64_t from, to;
		uint64_t slack; /* it may have begun so much earlier, or later */
		int doubtful; /* the mark may have waited for our own work */
	} piece[PREEMPT_PIECES];
};

/*
 * The device passed a mark at that moment. It was made between two moments of the host's clock,
 * which lie apart where the host was held up. `ended`: work of ours ended then, too.
 */
void preempt_note(struct preempt *x, uint64_t marked_ns, uint64_t sent_ns, uint64_t at, int ended);

/* The device came to something at that moment that the host had handed to it before. */
void preempt_compare_clocks(struct preempt *x, uint64_t host_ns, uint64_t at);
/* A moment of the host's clock by the device's, at the latest; 0: nothing is known of that yet. */
uint64_t preempt_device_time(const struct preempt *x, uint64_t host_ns);
/* Whether others have had the device lately. */
int preempt_is_shared(const struct preempt *x);

/* A single kernel of ours ran between two moments of the device. */
void preempt_note_kernel(struct preempt *x, uint64_t from, uint64_t to);

/* What others had of a time of the device, as far as was seen. */
struct preempt_sum {
	uint64_t ns;
	uint64_t slack_ns;    /* it may be so much less, or more */
	uint64_t doubtful_ns; /* and so much more than that */
};
struct preempt_sum preempt_time_between(const struct preempt *x, uint64_t from, uint64_t to);

#endif
