/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context_limits.h: what a context sets aside by cuCtxSetLimit: stacks, the buffer of printf, the
 * heap of device code. It is charged by the size asked for, before the driver takes it, and goes
 * with its context. Thread-safe.
 */
#ifndef CONTEXT_LIMITS_H
#define CONTEXT_LIMITS_H

#include <stddef.h>
#include <stdint.h>

#include "cuda_abi.h"

/* Around the driver's setting of a limit of the current context. */
struct context_limit_change {
	int device; /* index in the limits; -1: not charged */
	int limit;
	CUcontext context;
};
/* Reserves what it takes more. Not CUDA_SUCCESS: refused, and nothing more is to be done. */
CUresult context_limits_begin(struct context_limit_change *c, int limit, size_t value);
CUresult context_limits_end(struct context_limit_change *c, CUresult result);

/*
 * What a context has set aside: take it, destroy the context, settle. Another thread may be given
 * the same context again as soon as the driver has destroyed it. NULL: nothing.
 */
struct context_limits;
struct context_limits *context_limits_take(CUcontext context);
void context_limits_settle(struct context_limits *a, int gone);

/* In a child after fork. */
void context_limits_after_fork(void);

#endif
