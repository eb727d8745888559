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
/* a mark that is passed when a kernel of ours ends has waited for that kernel */
#define PREEMPT_SAME_NS 20000ULL

struct preempt {
	/* the context was on the device then; times of the device but where it says otherwise */
	uint64_t on_ns;
	/*
	 * how far the device's time is ahead of the host's: least of the window before, of this one
	 */
	int64_t offset, next;
	uint64_t window_ns; /* where this window began, by the host's clock; 0: there was none */
	uint64_t pieces;    /* so many there were; the last of them: */
	struct {
		uint64_t from, to;
	} piece[PREEMPT_PIECES];
};

/*
 * The device passed a mark at that moment. It was made between two moments of the host's clock,
 * which lie apart where the host was held up. `ended`: work of ours ended then, too.
 */
void preempt_note(struct preempt *x, uint64_t marked_ns, uint64_t sent_ns, uint64_t at, int ended);

/* How much of the time between two moments of the device others had, as far as was seen. */
uint64_t preempt_time_between(const struct preempt *x, uint64_t from, uint64_t to);

#endif
