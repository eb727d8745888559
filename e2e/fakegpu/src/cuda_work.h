/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_work.h: what streams, kernels, events and graphs of the fake share. */
#ifndef FAKEGPU_CUDA_WORK_H
#define FAKEGPU_CUDA_WORK_H

#include "cuda_fake.h"

/* launches and marks that wait on a stream before the next one blocks */
#define FG_QUEUE_DEPTH 1024

/*
 * The host's time for a call, on a clock of its own (clock.h): a launch's is an H200's, the others
 * are guesses.
 */
#define FG_LAUNCH_NS 3000
#define FG_MARK_NS 1000
#define FG_QUERY_NS 500

/* The stream behind a handle: NULL, 1 (legacy) and 2 (per thread) are the default stream here. */
struct CUstream_st *fg_stream(CUstream stream);

/*
 * Queues work of `ns` on a stream (0: a mark, as an event is). Its ticket (cuda_timeline.h), or 0
 * when the device is lost.
 */
uint64_t fg_enqueue(struct CUstream_st *stream, uint64_t ns);

/* The stream that NULL means for a per-thread twin. */
static inline CUstream fg_per_thread(CUstream stream)
{
	return stream ? stream : CU_STREAM_PER_THREAD;
}

/* The device of a stream, as the topology counts. */
int fg_minor(const struct CUstream_st *stream);

/* Calls that are unsafe while a stream is recorded spoil the recording. 1 when this one did. */
int fg_spoils(void);

/* While a stream is recorded into a graph, launches of `ns` go there: 1; else 0. */
int fg_capture(CUstream stream, uint64_t ns);

/* Takes what a module's image declares, in the current context, and gives it back (cuda_overhead.c). */
CUresult fg_module_open(const void *module, const void *image);
void fg_module_close(const void *module);

#endif
