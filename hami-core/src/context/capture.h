/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.h: captures of work into graphs, which calls of ours must not spoil, whichever thread has
 * one under way. What a stream records takes no memory, so it matters whether a call was recorded,
 * and other threads begin and end captures meanwhile. Thread-safe.
 */
#ifndef CAPTURE_H
#define CAPTURE_H

#include <stdint.h>

#include "cuda_abi.h"

/* Lets the thread ask for events whatever is captured; what to give capture_restore afterwards. */
int capture_relax(void);
void capture_restore(int before);

/* Whether a stream is recorded and not run (or cannot be asked). */
int capture_is_active(CUstream stream);

/*
 * Whether a stream records. Until capture_release no capture ends then, so that the next call on it
 * is recorded. That call does not wait for the device.
 */
int capture_hold(CUstream stream);
void capture_release(void);

/*
 * Around a call on a stream that did not record: whether it may have been recorded all the same.
 * The driver does not say, so what the call did has to be looked at.
 */
struct capture_view {
	uint64_t begun, ended;
};
void capture_watch(struct capture_view *v);
int capture_may_have_recorded(const struct capture_view *v, CUstream stream);
/* Whether any capture is under way. */
int capture_is_any_open(void);

/* Around the driver's beginning of a capture, and its end. */
void capture_begin_begin(void);
CUresult capture_begin_end(CUresult result);
void capture_end_begin(void);
CUresult capture_end_end(CUresult result);

/* In a child after fork. */
void capture_after_fork(void);

#endif
