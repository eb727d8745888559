/* SPDX-License-Identifier: Apache-2.0 */
/*
 * contexts.h: the contexts in which work is measured, and which of them a launch works in. Thread-
 * safe; no lock is held over a call of the driver.
 */
#ifndef CONTEXTS_H
#define CONTEXTS_H

#include "compute/spans.h"

/* A context's record, made on first sight; NULL when there is none for it. */
struct compute_context *contexts_get(CUcontext context);
/* The same without making one. */
struct compute_context *contexts_find(CUcontext context);
/*
 * Takes a context out that has gone or is about to, with what of its work was neither measured nor
 * known; calls no driver.
 */
void contexts_remove(CUcontext context, struct unmeasured_work *rest);

/* In a child after fork. */
void contexts_after_fork(void);

#endif
