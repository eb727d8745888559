/* SPDX-License-Identifier: Apache-2.0 */
/*
 * green.h: green contexts, parts of a device's multiprocessors that use its primary context's
 * memory. It tells which primary context a green one belongs to, so that memory and time are booked
 * there.
 *
 * A green context can be current to one thread alone, so no other thread may enter it. Events of
 * the primary one are recorded into a green one's stream instead. No real card has been asked
 * whether it takes that; where it does not, the work is paid by its estimate. Thread-safe.
 */
#ifndef GREEN_H
#define GREEN_H

#include "cuda_abi.h"
#include "model/table.h"

/* The context whose memory a context uses: a green one's primary one, itself for all others. */
CUcontext green_owner(CUcontext context);

/* Remembers a green context, its device and the context that it is used by (NULL: not known). */
void green_learn(CUgreenCtx green, CUdevice device, CUcontext context);

/* Looks up the device and the context of a green context; 0 when it is not known. */
int green_find(CUgreenCtx green, CUdevice *device, CUcontext *context);

/*
 * Destroying one has two halves, since the driver may refuse: take what is known, call the
 * driver, then settle with its answer.
 */
struct green_destruction {
	int found, had_context;
	struct table_entry green, context;
};
void green_destroy_begin(struct green_destruction *l, CUgreenCtx green);
void green_destroy_end(const struct green_destruction *l, CUresult result);

/* In a child after fork. */
void green_after_fork(void);

#endif
