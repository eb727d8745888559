/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spans.h: how long batches of work really took, from events in the streams.
 *
 * A span is one batch: the program's launches between two checkpoints of one thread. Three events
 * frame it: start (only when the stream was idle, else the end of the span before), mid and end,
 * with one launch between mid and end, whose single cost is learnt from them.
 *
 * Nothing here sleeps. Thread-safe: each context has a mutex, which is never held over a call of
 * the driver. Such a call can wait for work, and that work for a launch on another device. Where a
 * function calls the driver, the context has to be current. An event that fails for whatever reason
 * (its context is gone, say) makes the span unmeasured: then its estimate stands.
 */
#ifndef SPANS_H
#define SPANS_H

#include <pthread.h>

#include "cuda_abi.h"
#include "hamicore_abi.h"
#include "model/pace.h"
#include "model/preempt.h"

#define SPANS_MOST 64  /* in flight per context */
#define SPANS_EVENTS 256

struct span {
	CUevent start, mid, end; /* start NULL: continues where `after` ended */
	uint64_t after;          /* number of the span before on this stream; 0 = none */
	CUstream stream;
	/* the host's time for the launch after mid, if the device was idle then */
	uint64_t late_ns;
	uint64_t loading_ns; /* the part of it that was no work of the device for certain */
	uint64_t key;       /* what was launched between mid and end; 0: take no sample */
	uint64_t before;    /* and what before that: see cost_key_after */
	/* of the whole batch; PACE_UNKNOWN when something in it has no cost yet */
	uint64_t predicted;
	uint64_t paid;      /* taken from the balance already */
	uint64_t opened_ns; /* by the host's clock */
	int unmeasured;     /* launched on several streams: start and end say nothing */
	int free;           /* launched while nothing was limited */
	int settled;
	uint64_t charged_then; /* see pace_uncharged */
	/*
	 * what others had of the device between start and end, as far as was seen. Set when it has
	 * ended
	 */
	uint64_t others_ns;
	/* of what was launched between mid and end; 0: none. Set when it has ended */
	uint64_t sample;
};

/* Events on a stream of its own that tell when the context is on the device: see heartbeat.h. */
struct heartbeat {
	CUstream stream; /* NULL: not made yet */
	int impossible;  /* it cannot be made */
	int looking;     /* a thread does */
	CUevent mark;    /* NULL: none is under way */
	/* before and after the call that made it, by the host's clock: it may have been held up */
	uint64_t marked_ns, sent_ns;
};

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
	/* when the oldest of it came to the device, by estimate and the host's clock */
	uint64_t head_ns;
	uint64_t looked_ns;   /* the last harvest */
	CUevent pool[SPANS_EVENTS];
	int pooled, made;
	CUevent anchor; /* a finished event; all times are relative to it */
	uint64_t anchor_ns;
	uint64_t guess_ns; /* see compute_context_measured_guess; read without the mutex */
	struct pace_line line;
	struct preempt preempt;
	struct heartbeat heartbeat;
	struct {
		uint64_t number, end_ns;
	} ended[SPANS_MOST]; /* by number */
};

/*
 * Work that was in flight when its context went, and nobody knows the cost of. since_ns 0: there
 * was none.
 */
struct unmeasured_work {
	int device;
	/* begun at the earliest, by the host's clock; what is paid of it and what was beside it */
	uint64_t since_ns, paid_ns;
};

/*
 * Gives a record to a context (NULL: to none) and forgets everything about the one before; calls no
 * driver.
 */
void compute_context_reset(struct compute_context *p, CUcontext context, int device,
			   unsigned percent, struct unmeasured_work *rest);
static inline uint32_t compute_context_generation(const struct compute_context *p)
{
	return __atomic_load_n(&p->generation, __ATOMIC_ACQUIRE);
}

/* An event of the context, recorded on the stream now; NULL when that is impossible. */
CUevent span_record_event(struct compute_context *p, CUstream stream);
/* When the device came to an event, on the context's time line; 0 where that cannot be told. */
uint64_t span_event_time(struct compute_context *p, CUevent event);
/* 1 when the stream has come to the event (or will never). */
int span_event_passed(CUevent event);
/* Gives an event back; calls no driver. */
void span_release_event(struct compute_context *p, CUevent event);

/*
 * Begins the context's time line, if it has none yet. What was charged on it so far: the new span's
 * charged_then.
 */
uint64_t span_begin_timeline(struct compute_context *p, CUstream stream);

/* Number of the last span in flight on a stream; 0 when it is idle as far as we know. */
uint64_t span_find_running(struct compute_context *p, CUstream stream);

/* What work took that nothing was known of, lately; 0: nothing has been measured yet. */
static inline uint64_t compute_context_measured_guess(const struct compute_context *p)
{
	return __atomic_load_n(&p->guess_ns, __ATOMIC_RELAXED);
}

/*
 * What to pay for a launch of which nothing is known: what such took lately, and something for the
 * first.
 */
static inline uint64_t compute_context_guess(const struct compute_context *p)
{
	uint64_t guess = compute_context_measured_guess(p);
	return guess > PACE_NEW_NS ? guess : PACE_NEW_NS;
}

/*
 * Adds a span; without room for it, its events are given back and its estimate stands. Calls no
 * driver.
 */
void span_add(struct compute_context *p, const struct span *s);

/* Work in flight. */
struct work_in_flight {
	uint64_t ns;      /* what is left of it, by estimate */
	unsigned spans;
	unsigned unknown; /* batches of which the cost is not known */
	int sliced;       /* some of it is not known or longer than a time slice of the device */
	int lasting;      /* some of it is not known or takes several such slices */
};
struct work_in_flight spans_in_flight(struct compute_context *p, uint64_t now_ns);

/*
 * Settles all spans that have ended: a kernel that runs for ever must not hold up the others.
 * Returns what to give back to the balance (negative: to take); 0 while another thread does it.
 */
int64_t spans_harvest(struct compute_context *p, struct vgpu_pace *budget, uint64_t now_ns);

#endif
