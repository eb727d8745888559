/* SPDX-License-Identifier: Apache-2.0 */
/*
 * capture.h: captures of work into graphs, which calls of ours must not spoil, whichever thread has
 * one under way.
 */
#ifndef CAPTURE_H
#define CAPTURE_H

#include "cuda_abi.h"

/* Lets the thread ask for events whatever is captured; what to give capture_restore afterwards. */
int capture_relax(void);
void capture_restore(int before);

/* Whether a stream is recorded and not run (or cannot be asked). */
int capture_is_active(CUstream stream);

#endif
