/* SPDX-License-Identifier: Apache-2.0 */
/*
 * batch.h: what a thread has launched since its last checkpoint. A launch that only adds to it is
 * counted here: no call, no clock, nothing shared but loads.
 */
#ifndef BATCH_H
#define BATCH_H

#include <stdint.h>

#include "compute/contexts.h"
#include "model/costs.h"

#define BATCH_LAUNCHES 4096 /* most launches between two checkpoints */
#define BATCH_NO_STREAM ((CUstream)-1)

struct batch {
	/* for batch_try_count, in one line of the cache: */
	/* a launch on it belongs to this batch; BATCH_NO_STREAM: ask */
	CUstream only;
	/* where the batch is; when it is not open, the last one seen not to be limited, or NULL */
	struct compute_context *compute_context;
	uint64_t size, sum;  /* nanoseconds: when to close it; launched so far */
	uint32_t generation; /* of that context */
	int launches;
	uint64_t before; /* the key of what the thread launched last, wherever */
	/* `only` is of the context that is current, this one; NULL: it is made */
	CUcontext current;
	/* the rest: */
	int open;
	uint32_t seed;      /* 0: the thread has had no batch yet */
	CUcontext context;
	uint64_t rest;      /* of the size, where a wait ended the batch before */
	int young;          /* so many batches more it may be of a program that ends soon */
	uint64_t last;      /* what such a program paid for the batch before, by estimate; else 0 */
	int64_t claimed;    /* taken from the balance when it began */
	uint64_t waits_ns; /* the program waits for its work since then; 0: it does not */
	int unsettled;      /* it has launched since it last found all of its work settled */
	int device;
	struct span span;
} __attribute__((aligned(64)));

extern _Thread_local struct batch thread_batch
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

/* Whether a context has gone since the thread was there. */
static inline int batch_is_stale(const struct batch *b)
{
	return b->generation != compute_context_generation(b->compute_context);
}

/* The context that is current, green ones as they are. */
CUcontext batch_current_context(void);

/* Counts a launch that neither begins nor ends a batch. 0: it may do so, and is not counted. */
static inline int batch_try_count(CUstream stream, uint64_t key)
{
	struct batch *b = &thread_batch;
	if (b->only != stream || !b->compute_context || batch_is_stale(b))
		return 0;
	if (__builtin_expect(b->current != NULL, 0) && b->current != batch_current_context())
		return 0;
	uint64_t cost = cost_of(key, b->before), sum = b->sum + cost;
	if (!cost || sum >= b->size || b->launches >= BATCH_LAUNCHES - 1)
		return 0;
	b->sum = sum;
	b->before = key;
	b->launches++;
	return 1;
}

/* Ends a batch: the thread is nowhere from here on. */
void batch_reset(struct batch *b);
/*
 * A batch that cannot be ended where it began: its estimate stands, and it is paid at once. Calls
 * no driver.
 */
void batch_abandon(struct batch *b);
/*
 * Ends an open batch without a further launch, so that no pause of the program is in it. Its last
 * launch was made by then. Nothing where none is open.
 */
void batch_close(struct batch *b, uint64_t launched_ns);
/*
 * Hands a batch over to be measured: its events are made by now, or cannot be. What is paid for it
 * by estimate stays paid until then.
 */
void batch_hand_over(struct batch *b, int measured);

/* Whether a batch launches on a stream. */
int batch_is_on_stream(const struct span *s, CUstream stream);
/* Adds a stream to a batch's. 0: it has enough of them. */
int batch_add_stream(struct span *s, CUstream stream);

#endif
