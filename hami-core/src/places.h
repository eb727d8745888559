/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places.h: the contexts in which work is measured, and which of them a launch works in. Thread-safe; no lock is held over a
 * call of the driver.
 */
#ifndef PLACES_H
#define PLACES_H

#include "spans.h"

/*
 * The context of a stream's work: a stream's own, whatever is current (a kernel without a context takes the stream's, too), and the
 * current one for the default streams. NULL when there is none. For a green context it is the primary one that it belongs to: a green
 * one can be current to one thread alone, so that no other may enter it. They share the device's memory and time, so they share a place,
 * too, and an event of the primary one is recorded into a green one's stream. No real card has been asked whether it takes that: where it
 * does not, the work is not measured, and its estimate stands.
 */
CUcontext stream_context(CUstream stream);
/* Whether a handle is a stream that somebody made, which has a context of its own. */
static inline int stream_is_made(CUstream stream)
{
	return stream > CU_STREAM_PER_THREAD;
}

/* Makes a context current for a while, unless it or a green one of it is; leave with what that returned. */
int context_enter(CUcontext context);
void context_leave(int entered);

/* A context's place, made on first sight; NULL when there is none for it. */
struct place *place_of(CUcontext context);
/* The same without making one. */
struct place *place_known(CUcontext context);
/* Takes a context out that has gone or is about to, with what of its work was neither measured nor known; calls no driver. */
void place_forget(CUcontext context, struct span_rest *rest);

/* In a child after fork. */
void places_after_fork(void);

#endif
