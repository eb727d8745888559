/* SPDX-License-Identifier: Apache-2.0 */
/*
 * heartbeat.h: looks whether the device works for others while work of ours is queued there. It
 * records an event on a stream of its own again and again, and notes when each is passed
 * (preempt.h).
 */
#ifndef HEARTBEAT_H
#define HEARTBEAT_H

#include <stdint.h>

#include "compute/spans.h"
#include "cuda_abi.h"

/* Events on a stream of its own that tell when the context is on the device: see heartbeat.h. */
struct heartbeat {
	CUstream stream; /* NULL: not made yet */
	int impossible;  /* it cannot be made */
	int looking;     /* a thread does */
	CUevent mark;    /* NULL: none is under way */
	/* before and after the call that made it, by the host's clock: it may have been held up */
	uint64_t marked_ns, sent_ns;
};

/*
 * Looks once; the context has to be current. Takes two calls of the driver, waits for
 * nothing. Thread-safe.
 */
void heartbeat_poll(struct compute_context *p);

/*
 * Settles what has ended. Looks first whether others had the device meanwhile, where they do or
 * that is asked for. What is still in flight. The context has to be current.
 */
struct work_in_flight heartbeat_look(struct compute_context *p, uint64_t now_ns, int for_others);

/* How often others were found on the device; one is counted that a mark waits for now. */
uint64_t heartbeat_count_preemptions(struct compute_context *p, uint64_t now_ns);

#endif
