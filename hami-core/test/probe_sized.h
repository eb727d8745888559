/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_sized.h: small CUDA programs by name, run by pools_test and sized_test under the library.
 * They compare the limits, PROBE_LIMIT_0 and PROBE_LIMIT_1 in MiB (0: none), with what the fake
 * card has given out.
 */
#ifndef PROBE_SIZED_H
#define PROBE_SIZED_H

#include "card.h"

uint64_t limit_of(int device);
/* With a device current: what is left of it, an allocation. The context before stays current. */
size_t left_on(int device);
CUresult take_on(int device, uint64_t bytes);
/* The driver's own function, whatever stands in front of it. */
void *bare(const char *symbol);

#define SIZED(X)                                                                                   \
	X(across) X(alone) X(together) X(meeting) X(given_back) X(other_granule)                                 \
	X(graph_refused) X(graph_ways) X(graph_reuse) X(graph_alone) X(graph_together)             \
	X(limits_refused) X(limits_replaced) X(limits_together) X(mixed_range) X(mixed_random)
#define SIZED_DECLARE(name) void probe_##name(void);
SIZED(SIZED_DECLARE)

#endif
