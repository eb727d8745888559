/* SPDX-License-Identifier: Apache-2.0 */
/*
 * costs.h: what single kernels and graphs cost, by key, in nanoseconds of the device, for the whole process. Thread-safe.
 */
#ifndef COSTS_H
#define COSTS_H

#include <stdint.h>

/* 0: not known. Lock-free. */
uint64_t cost_of(uint64_t key);

/* Adds what one launch took, and how much of it the host may have: see pace_cost_sample. */
void cost_learn(uint64_t key, uint64_t elapsed, uint64_t late);

/* In a child after fork. */
void cost_reset(void);

#endif
