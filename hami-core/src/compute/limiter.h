/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limiter.h: holds launches back so that the container gets its share of a device's time, all
 * its processes together. The arithmetic is pace.h, the measuring spans.h.
 *
 *	if (limiter_idle())                    // one load: nothing is limited here
 *		return original(...);
 *	struct launch l = {...};
 *	limiter_before(&l);                    // may sleep
 *	return limiter_after(&l, original(...));
 *
 * Thread-safe. No thread of its own, no signal.
 */
#ifndef LIMITER_H
#define LIMITER_H

#include <stdint.h>

#include "cuda_abi.h"
#include "compute/spans.h"

struct launch {
	CUstream stream;
	uint64_t key; /* what is launched, for its cost; not 0 */
	uint64_t kin; /* the same in nearly its size; 0: there is no such thing */
	uint64_t before; /* the key of what the thread launched before; limiter_before sets it */
	int graph;    /* a whole graph: always measured by itself */
	CUevent mid;
	uint64_t mid_ns; /* by the host's clock */
	uint64_t cost;   /* 0: not known */
	int checkpoint;  /* the batch ends here */
};

/*
 * The word that decides the fast path: LIMITER_IDLE means go. For a process without limits it is a
 * constant; with limits, but all of the GPU's time, it is the region's recent_kernel, which a
 * monitor counts down (then the next launch stamps it again) and makes negative to hold launches.
 */
#define LIMITER_IDLE 2
extern const int32_t *limiter_word __attribute__((visibility("hidden")));

static inline int limiter_idle(void)
{
	return __atomic_load_n(__atomic_load_n(&limiter_word, __ATOMIC_RELAXED),
			       __ATOMIC_RELAXED) == LIMITER_IDLE;
}

void limiter_before(struct launch *l);
CUresult limiter_after(struct launch *l, CUresult result);

/*
 * Instead of limiter_after, before the driver is called: the launch, and what the thread launched
 * before it, is paid by estimate.
 */
void limiter_pay_by_estimate(struct launch *l);

/*
 * The context whose work a thread is about to wait for (NULL: the current one's); settle it then.
 * NULL where nothing is limited.
 */
CUcontext limiter_context_to_settle(CUstream stream);
/*
 * Before the driver is asked to wait, until `ended(handle)`: looks whether others have the device
 * meanwhile, or a long kernel that the program waits for would be charged for them. Returns before
 * the work ends where the program is alone on the device, so that its wait is no longer.
 */
void limiter_watch_until(CUcontext context, int (*ended)(const void *handle), const void *handle);
/*
 * The program asks whether work has ended: its pause begins. What has ended is paid, and what takes
 * longer than it looked is paid while it runs. Cheap when asked again and again, but for one that
 * the driver has answered with yes (`ended`).
 */
void limiter_poll(int ended);
/*
 * What has ended in a context is paid now: the program may end without a further launch. Cheap when
 * nothing is in flight.
 */
void limiter_settle(CUcontext context);

/*
 * Around the driver's call that takes a context away:
 *
 *	limiter_settle(context);                      // what has ended is paid
 *	limiter_remove_context_begin(&rest, context); // its events are not asked again
 *	r = original(...);
 *	limiter_remove_context_end(&rest);
 *
 * What was in flight is paid by the host's clock, the call included.
 */
void limiter_remove_context_begin(struct unmeasured_work *rest, CUcontext context);
void limiter_remove_context_end(const struct unmeasured_work *rest);

/* A context has gone or is about to, with its events: both of the above at once. */
void limiter_remove_context(CUcontext context);

/* What this process has launched is paid when it ends: nobody measures it afterwards. */
void limiter_settle_at_exit(void);

/* In a child after fork: CUDA is gone there. */
void limiter_after_fork(void);

#endif
