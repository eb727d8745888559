/* SPDX-License-Identifier: Apache-2.0 */
/*
 * aside.h: what a context sets aside by cuCtxSetLimit: stacks, the buffer of printf, the heap of
 * device code. It is charged by the size asked for, before the driver takes it, and goes with its
 * context. Thread-safe.
 */
#ifndef ASIDE_H
#define ASIDE_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"

/* Around the driver's setting of a limit of the current context. */
struct aside_change {
	int device; /* index in the limits; -1: not charged */
	int limit;
	CUcontext context;
};
/* Reserves what it takes more. Not CUDA_SUCCESS: refused, and nothing more is to be done. */
CUresult aside_begin(struct aside_change *c, int limit, size_t value);
CUresult aside_end(struct aside_change *c, CUresult result);

/*
 * What a context has set aside: take it, destroy the context, settle. Another thread may be given
 * the same context again as soon as the driver has destroyed it. NULL: nothing.
 */
struct aside;
struct aside *aside_take(CUcontext context);
void aside_settle(struct aside *a, int gone);

/* In a child after fork. */
void aside_after_fork(void);

#endif
