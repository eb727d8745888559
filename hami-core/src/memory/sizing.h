/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sizing.h: how much one context takes of a device, measured while one is made and kept in the
 * region for the whole container. By preference it is what NVML says of this process. Where NVML
 * does not know it, it is the card's free memory before and after, less what the container took
 * meanwhile. Thread-safe; devices are indexes into the limits; bytes.
 */
#ifndef SIZING_H
#define SIZING_H

#include <stdint.h>

#include "memory/measure.h"

/* Around the making of a context. */
struct sizing {
	int wanted; /* its size is not known well enough yet */
	int measured;
	int first; /* nothing of this process was there before */
	struct measure_reading before;
	uint64_t card_free, used;
};
void sizing_begin(struct sizing *s, int device, int first);

/*
 * The context was made; `alone`: the container made and ended no other one meanwhile. 1 when NVML
 * was seen to list this process with its first context, and not before.
 */
int sizing_end(const struct sizing *s, int device, int alone);

/*
 * A context that was made behind our back: all this process has there beyond its data is taken
 * for it.
 */
void sizing_found(int device);

#endif
