/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture_test.c: whether a call on a stream may have been recorded, while another thread begins
 * and ends a capture of that stream. The driver is played here, and the other thread by it: it does
 * its next step when the driver is asked about the stream, or at a place that the test chooses.
 */
#include "testing.h"

#include "context/capture.h"
#include "driver/resolve.h"

#define STREAM ((CUstream)(uintptr_t)0x10)

static int is_recorded; /* what the driver would say of the stream */
/* The steps that the other thread still has to do, in its order, and how many when it is asked. */
static int step, steps_when_asked;

static void do_step(void)
{
	switch (step++ % 6) {
	case 0: capture_begin_begin(); break;
	case 1: is_recorded = 1; break;
	case 2: capture_begin_end(CUDA_SUCCESS); break;
	case 3: capture_end_begin(); break;
	case 4: is_recorded = 0; break;
	case 5: capture_end_end(CUDA_SUCCESS); break;
	}
}

static void do_steps(int n)
{
	while (n-- > 0)
		do_step();
}

/* The other thread goes on just before the driver looks. */
static CUresult play_is_capturing(CUstream stream, int *status)
{
	(void)stream;
	do_steps(steps_when_asked);
	*status = is_recorded;
	return CUDA_SUCCESS;
}

void *originals[SYMBOL_COUNT]; /* nothing is known: original_resolve is asked */

void *original_resolve(enum symbol_id id)
{
	return id == ID_cuStreamIsCapturing ? (void *)play_is_capturing : NULL;
}

/*
 * The other thread does some steps before the watch, some before the call, some after it, and some
 * while the driver is asked. The call must not count as one that ran if it was recorded.
 */
TEST("a recorded call never counts as one that ran, whenever the other thread goes on")
{
	int recorded = 0;
	for (int first = 0; first <= 12; first++)
		for (int before = 0; before <= 12; before++)
			for (int after = 0; after <= 12; after++)
				for (int asked = 0; asked <= 12; asked++) {
					struct capture_view v;
					capture_after_fork();
					step = is_recorded = 0;
					do_steps(first);
					capture_watch(&v);
					do_steps(before);
					int was_recorded = is_recorded; /* the call */
					do_steps(after);
					steps_when_asked = asked;
					int told = capture_may_have_recorded(&v, STREAM);
					recorded += was_recorded;
					CHECK(told || !was_recorded);
				}
	CHECK(recorded > 1000);
}

TEST("where no capture is near, a call ran")
{
	struct capture_view v;
	capture_after_fork();
	step = is_recorded = steps_when_asked = 0;
	capture_watch(&v);
	CHECK(!capture_may_have_recorded(&v, STREAM));
	do_steps(6); /* one that began and ended before */
	capture_watch(&v);
	CHECK(!capture_may_have_recorded(&v, STREAM));
	do_steps(1);
	CHECK(capture_may_have_recorded(&v, STREAM));
	CHECK(!capture_may_have_recorded(&v, NULL)); /* the legacy stream cannot record */
}

TEST_MAIN
