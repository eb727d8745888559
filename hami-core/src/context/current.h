/* SPDX-License-Identifier: Apache-2.0 */
/*
 * current.h: which context a thread or a stream works in, and making one current for a while. A
 * green context is answered with the primary one whose memory and time it uses (green.h).
 * Thread-safe.
 */
#ifndef CURRENT_H
#define CURRENT_H

#include "cuda_abi.h"

/* The calling thread's context, or the one whose memory it uses; NULL when there is none. */
CUcontext current_context(void);

/*
 * The context of a stream's work: a stream's own, whatever is current (a kernel without a context
 * takes the stream's, too), and the current one for the default streams. NULL when there is none.
 */
CUcontext current_stream_context(CUstream stream);

/* Whether a handle is a stream that somebody made, which has a context of its own. */
static inline int stream_is_made(CUstream stream)
{
	return stream > CU_STREAM_PER_THREAD;
}

/*
 * Makes a context current for a while, unless it or a green one of it is already.
 * Returns what current_pop needs.
 */
int current_push(CUcontext context);
void current_pop(int entered);

#endif
