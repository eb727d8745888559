/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_work.h: what streams, kernels, events and graphs of the fake share. */
#ifndef FAKEGPU_CUDA_WORK_H
#define FAKEGPU_CUDA_WORK_H

#include "cuda_fake.h"

#define FG_QUEUE_DEPTH 1024 /* launches that wait on a stream before a launch blocks */

/* The stream behind a handle: NULL, 1 (legacy) and 2 (per thread) are the default stream here. */
struct CUstream_st *fg_stream(CUstream stream);

/*
 * Queues work of `ns` on a stream, after all work of the device so far (0: a mark, as an
 * event is). When it ends, or 0 when the device is lost.
 */
uint64_t fg_enqueue(struct CUstream_st *stream, uint64_t ns);

void fg_sleep_until(uint64_t ns);

/* While a stream is recorded into a graph, launches of `ns` go there: 1; else 0. */
int fg_capture(CUstream stream, uint64_t ns);

#endif
