/* SPDX-License-Identifier: Apache-2.0 */
/*
 * places.h: the contexts in which work is measured, and which of them a launch works in. Thread-
 * safe; no lock is held over a call of the driver.
 */
#ifndef PLACES_H
#define PLACES_H

#include "compute/spans.h"

/* A context's place, made on first sight; NULL when there is none for it. */
struct place *place_of(CUcontext context);
/* The same without making one. */
struct place *place_known(CUcontext context);
/*
 * Takes a context out that has gone or is about to, with what of its work was neither measured nor
 * known; calls no driver.
 */
void place_forget(CUcontext context, struct span_rest *rest);

/* In a child after fork. */
void places_after_fork(void);

#endif
