/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_timeline.h: when a device comes to the work that is queued on it.
 *
 * In real time the device works off everything in the order of launches. On a clock of its own
 * (clock.h) processes with work take turns of 2 ms, as on a real card, and what is still queued may
 * end later than it looked. So an end of work is a ticket: a time, or an amount of this process's
 * work.
 */
#ifndef FAKEGPU_CUDA_TIMELINE_H
#define FAKEGPU_CUDA_TIMELINE_H

#include "clock.h"
#include "state.h"

#define FG_SEGMENTS 4096

/* What a process has had of a device on a clock of its own. */
struct fg_lane {
	uint64_t done; /* nanoseconds of its work */
	uint64_t segments; /* times without a pause, ever; the last FG_SEGMENTS of them: */
	struct {
		uint64_t from_ns, to_ns, done; /* at the end */
	} segment[FG_SEGMENTS];
};

struct fg_turns {
	uint64_t now_ns;
	uint64_t left[FG_PLACES]; /* nanoseconds of queued work */
	int turn; /* place of who works, or did last */
	uint64_t slice_ns, switch_ns; /* left of its turn; left of the change to it */
};

struct fg_timeline {
	struct fg_turns turns;
	struct fg_lane lane[FG_PLACES];
};

/*
 * Queues work of `ns` behind what is there, `after` at the earliest. Its ticket, never 0. Needs
 * fg_lock.
 */
uint64_t fg_timeline_add(int minor, uint64_t after, uint64_t ns);
/*
 * On a clock of its own: the ticket of a mark that waits for no work, but for the process's next
 * time slice.
 */
uint64_t fg_timeline_slice(int minor);
/* The ticket of all that this process (in real time: everybody) has queued. */
uint64_t fg_timeline_end(int minor);
int fg_timeline_passed(int minor, uint64_t ticket);
void fg_timeline_wait(int minor, uint64_t ticket);
/*
 * When the device came to a mark made at `recorded_ns` that has passed: at once, where it had
 * nothing else to do.
 */
uint64_t fg_timeline_when(int minor, uint64_t ticket, uint64_t recorded_ns);

#endif
