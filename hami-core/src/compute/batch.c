/* SPDX-License-Identifier: Apache-2.0 */
#include "compute/batch.h"

#include "compute/budget.h"
#include "context/capture.h"
#include "context/current.h"
#include "driver/resolve.h"

_Thread_local struct batch thread_batch __attribute__((tls_model("initial-exec"))) = {
	.only = BATCH_NO_STREAM};

CUcontext batch_current_context(void)
{
	CUcontext context = NULL;
	fn_cuCtxGetCurrent get = ORIGINAL(cuCtxGetCurrent);
	return get && get(&context) == CUDA_SUCCESS ? context : NULL;
}

/* Ends a batch: the thread is nowhere from here on. */
void batch_reset(struct batch *b)
{
	if (b->open)
		compute_context_uncount_open(b->compute_context, b->generation, b->size);
	b->open = 0;
	b->compute_context = NULL;
	b->only = BATCH_NO_STREAM;
}

/*
 * A batch that cannot be ended where it began: its estimate stands, and it is paid at once. Calls
 * no driver.
 */
void batch_abandon(struct batch *b)
{
	if (!batch_is_stale(b))
		span_release_event(b->compute_context, b->span.start);
	if (!b->span.free)
		budget_add(b->device, b->claimed - (int64_t)b->sum);
	batch_reset(b);
}

/* Whether the batch launches on a stream. */
int batch_is_on_stream(const struct span *s, CUstream stream)
{
	for (int i = 0; i < s->streams; i++)
		if (s->stream[i] == stream)
			return 1;
	return 0;
}

/* Adds a stream to the batch's. 0: it has enough of them. */
int batch_add_stream(struct span *s, CUstream stream)
{
	if (batch_is_on_stream(s, stream))
		return 1;
	if (s->streams == SPAN_STREAMS)
		return 0;
	s->stream[s->streams++] = stream;
	return 1;
}

/*
 * Hands the thread's batch over to be measured: its events are made by now, or cannot be. What is
 * paid for it by estimate stays paid until then.
 */
void batch_hand_over(struct batch *b, int measured)
{
	struct span *s = &b->span;
	s->paid = s->free ? 0 : b->sum;
	if (measured)
		span_add(b->compute_context, s);
	budget_add(b->device, b->claimed - (int64_t)s->paid);
	b->rest = b->size > b->sum ? b->size - b->sum : 0;
	b->young -= b->young > 0;
	b->last = b->young ? b->sum : 0;
	batch_reset(b);
	b->unsettled = 1;
}

/*
 * Ends the thread's batch without a further launch, so that no pause of the program is in it. Its
 * last launch was made by then.
 */
void batch_close(struct batch *b, uint64_t launched_ns)
{
	struct span *s = &b->span;
	if (!b->open)
		return;
	if (batch_is_stale(b) || capture_is_active(s->stream[0])) {
		batch_abandon(b);
		return;
	}
	int before = capture_relax(), entered = current_push(b->context);
	s->predicted = b->sum;
	s->launched_ns = launched_ns;
	batch_hand_over(b, (s->start || s->after) && span_end(b->compute_context, s));
	current_pop(entered);
	capture_restore(before);
}
