/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overflow.h: memory beyond the card, from the host, where the limits say "oversubscribe on": for
 * plain memory alone, under the same limit, and only when the card is full.
 */
#ifndef OVERFLOW_H
#define OVERFLOW_H

#include "memory/blocks.h"

/*
 * The driver has answered `refusal` to an allocation that the limit admits. OUT_OF_MEMORY becomes
 * managed memory that prefers the device, if the device can share managed memory with the host
 * while both work; otherwise the refusal stands. What was got is told to monitors (VGPU_OVERFLOW).
 */
CUresult overflow_alloc(struct block_charge *c, CUresult refusal, CUdeviceptr *pointer,
			uint64_t bytes);

/* An allocation was freed. */
void overflow_freed(CUdeviceptr pointer);

/* What is free to a program: the card does not bound it where the host helps out. */
uint64_t overflow_visible_free(uint64_t card_free);
uint64_t overflow_visible_total(uint64_t card_total, uint64_t limit);

#endif
