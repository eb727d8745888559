/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contexts.h: the contexts in which work is measured, and which of them a launch works in. Thread-
 * safe; no lock is held over a call of the driver.
 */
#ifndef CONTEXTS_H
#define CONTEXTS_H

#include <pthread.h>

#include "compute/heartbeat.h"
#include "compute/spans.h"
#include "cuda_abi.h"
#include "model/pace.h"
#include "model/preempt.h"

/* What is known of the work in one CUDA context. */
struct compute_context {
	pthread_mutex_t mutex; /* for what is below */
	uint32_t generation;   /* counts the contexts that were here; read without the mutex */
	/* a thread looks at what has ended: it alone changes the anchor that is there */
	int harvesting;
	CUcontext context;     /* NULL: unused. Changed under the mutex of contexts.c, too */
	int device; /* index in the limits */
	unsigned percent;
	struct span ring[SPANS_MOST];
	/* numbers of the oldest span that is not settled and of the next one; from 1 */
	uint64_t first, next;
	uint64_t queued;      /* nanoseconds of work in flight, by estimate */
	uint64_t open_ns;     /* what open batches of all threads may come to */
	/* when the oldest of it came to the device, by estimate and the host's clock */
	uint64_t head_ns;
	uint64_t looked_ns;   /* the last harvest */
	CUevent pool[SPANS_EVENTS];
	int pooled, made;
	CUevent anchor; /* a finished event; all times are relative to it */
	uint64_t anchor_ns;
	int measured; /* a span of which nothing was known; read without the mutex */
	struct pace_line line;
	struct preempt preempt;
	struct heartbeat heartbeat;
	struct {
		uint64_t number, end_ns;
	} ended[SPANS_MOST]; /* by number */
};

/*
 * Gives a record to a context (NULL: to none) and forgets everything about the one before; calls no
 * driver.
 */
void compute_context_reset(struct compute_context *p, CUcontext context, int device,
			   unsigned percent, struct unmeasured_work *rest);

/* Counts an open batch of this size among the context's, or uncounts it, unless it has gone. */
void compute_context_count_open(struct compute_context *p, uint32_t generation, uint64_t size);
void compute_context_uncount_open(struct compute_context *p, uint32_t generation, uint64_t size);

static inline uint32_t compute_context_generation(const struct compute_context *p)
{
	return __atomic_load_n(&p->generation, __ATOMIC_ACQUIRE);
}

/* Whether there is any record: none is made before work is limited. */
int contexts_exist(void);
/* A context's record, made on first sight; NULL when there is none for it. */
struct compute_context *contexts_get(CUcontext context);
/* The same without making one. */
struct compute_context *contexts_find(CUcontext context);
/* The records, used or not, from 0 on; NULL behind the last. */
struct compute_context *contexts_at(int i);
/*
 * Takes a context out that has gone or is about to, with what of its work was neither measured nor
 * known; calls no driver.
 */
void contexts_remove(CUcontext context, struct unmeasured_work *rest);

/* In a child after fork. */
void contexts_after_fork(void);

#endif
