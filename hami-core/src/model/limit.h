/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limit.h: the arithmetic of a memory limit. Pure: no driver, no clock, no state.
 * Amounts are bytes; a limit of 0 means none.
 */
#ifndef LIMIT_H
#define LIMIT_H

#include <stdint.h>

/* The driver backs device memory by pages of this size (research: to be confirmed on a card). */
#define PAGE_BYTES (2ULL << 20)

/*
 * The driver packs requests of up to this many bytes into shared pages, in steps of PACK_BYTES, and
 * gives larger ones whole pages of their own (measured on an H200, driver 580: docs/benchmarks.md).
 */
#define SMALL_MOST (1ULL << 20)
#define PACK_BYTES 512ULL

/* Rounded up to whole pages; amounts beyond the last page stay UINT64_MAX. */
uint64_t limit_round_to_pages(uint64_t bytes);

/*
 * More than any card has. Who asks for more is refused before it is booked: the sum would refuse
 * others meanwhile.
 */
#define LIMIT_MOST (1ULL << 48)

/* Whether `ask` more bytes may be taken when `used` are. Without a limit no sum refuses. */
int limit_admits(uint64_t used, uint64_t ask, uint64_t limit);

/* What a program is told: never more than there is, never more than it may have. */
uint64_t limit_visible_total(uint64_t physical_total, uint64_t limit);
uint64_t limit_visible_free(uint64_t physical_free, uint64_t used, uint64_t limit);

/* For answers of 32 bits (the API before CUDA 3.2): the nearest that fits. */
uint32_t limit_clamp_u32(uint64_t bytes);

#endif
