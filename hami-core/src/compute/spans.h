/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spans.h: how long batches of work really took, from events in the streams.
 *
 * A span is one batch: the program's launches between two checkpoints of one thread. An event on
 * each of its streams ends it. It starts with an event of its own if the context was idle, else
 * where the span before ends. A further event before its last launch gives a sample of that launch.
 *
 * What is between start and end is charged, but for what others were seen to have of it
 * (heartbeat.h). The estimate decides only where the device may have stood idle: before the last
 * launch, while the host was still launching.
 *
 * Nothing here sleeps. Thread-safe: each context has a mutex, which is never held over a call of
 * the driver. Such a call can wait for work, and that work for a launch on another device. Where a
 * function calls the driver, the context has to be current. An event that fails for whatever reason
 * (its context is gone, say) makes the span unmeasured: then its estimate stands.
 */
#ifndef SPANS_H
#define SPANS_H

#include <stdint.h>

#include "cuda_abi.h"
#include "hamicore_abi.h"
#include "model/pace.h"
#include "model/preempt.h"

#define SPANS_MOST 64  /* in flight per context */
#define SPANS_EVENTS 256

#define SPAN_STREAMS 4 /* that a batch goes to at most */

struct span {
	CUevent start, mid; /* start NULL: continues where `after` ended */
	CUevent end[SPAN_STREAMS];
	CUstream stream[SPAN_STREAMS];
	int streams;
	uint64_t after; /* number of a span that was in flight when this one began; 0 = none */
	/* the host's time for the launch after mid, if the device was idle then */
	uint64_t late_ns;
	uint64_t key;       /* what was launched between mid and end; 0: take no sample */
	uint64_t kin;       /* see cost_of_kin */
	uint64_t before;    /* and what before that: see cost_key_after */
	/* of the whole batch; PACE_UNKNOWN when something in it has no cost yet */
	uint64_t predicted;
	uint64_t paid;      /* taken from the balance already */
	/* by the host's clock: before the first launch; when the last one was made at the latest */
	uint64_t opened_ns, launched_ns;
	int single;         /* that is one kernel */
	int free;           /* launched while nothing was limited */
	int settled;
	uint64_t charged_then; /* see pace_uncharged */
	uint64_t seen_then;    /* what marks had seen of the device when it began: preempt.h */
	/* what others had of the device between start and end. Set when it has ended */
	struct preempt_sum others;
};

struct compute_context; /* contexts.h */

/*
 * Work that was in flight when its context went, and nobody knows the cost of. since_ns 0: there
 * was none.
 */
struct unmeasured_work {
	int device;
	/* begun at the earliest, by the host's clock; what is paid of it and what was beside it */
	uint64_t since_ns, paid_ns;
};

/* An event of the context, recorded on the stream now; NULL when that is impossible. */
CUevent span_record_event(struct compute_context *p, CUstream stream);
/* When the device came to an event, on the context's time line; 0 where that cannot be told. */
uint64_t span_event_time(struct compute_context *p, CUevent event);
/* 1 when the stream has come to the event (or will never). */
int span_event_passed(CUevent event);
/* Gives an event, or all of a span, back; calls no driver. */
void span_release_event(struct compute_context *p, CUevent event);
void span_discard(struct compute_context *p, const struct span *s);

/*
 * Begins a span on a stream: where the context's time line is, which it begins if there is none,
 * and what is in flight.
 */
void span_begin(struct compute_context *p, struct span *s, CUstream stream);
/* Ends it: an event on each of its streams. 0: that cannot be, and its events are given back. */
int span_end(struct compute_context *p, struct span *s);

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
	int shared;       /* others have had the device lately */
};
struct work_in_flight spans_in_flight(struct compute_context *p, uint64_t now_ns);

/*
 * Settles all spans that have ended: a kernel that runs for ever must not hold up the others.
 * Returns what to give back to the balance (negative: to take); 0 while another thread does it.
 */
int64_t spans_harvest(struct compute_context *p, struct vgpu_pace *budget, uint64_t now_ns);

#endif
