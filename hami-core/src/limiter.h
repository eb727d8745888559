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

struct launch {
	CUstream stream;
	uint64_t key; /* what is launched, for its cost; not 0 */
	int graph;    /* a whole graph: always measured by itself */
	CUevent mid;
	uint64_t mid_ns; /* by the host's clock */
	uint64_t cost;   /* 0: not known */
	int checkpoint;  /* the batch ends here */
};

/*
 * The word that decides the fast path: LIMITER_IDLE means go. For a process without limits it is a constant;
 * with limits, but all of the GPU's time, it is the region's recent_kernel, which a monitor
 * counts down (then the next launch stamps it again) and makes negative to hold launches.
 */
#define LIMITER_IDLE 2
extern const int32_t *limiter_word __attribute__((visibility("hidden")));

static inline int limiter_idle(void)
{
	return __atomic_load_n(__atomic_load_n(&limiter_word, __ATOMIC_RELAXED), __ATOMIC_RELAXED) == LIMITER_IDLE;
}

void limiter_before(struct launch *l);
CUresult limiter_after(struct launch *l, CUresult result);

/* A context is about to go, with its events. */
void limiter_forget(CUcontext context);

/* In a child after fork: CUDA is gone there. */
void limiter_after_fork(void);

#endif
