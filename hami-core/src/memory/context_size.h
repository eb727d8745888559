/* SPDX-License-Identifier: Apache-2.0 */
/*
 * context_size.h: how much one context takes of a device, measured while one is made and kept in
 * the region for the whole container. By preference it is what NVML says of this process. Where
 * NVML does not know it, it is the card's free memory before and after, less what the container
 * took meanwhile. Thread-safe; devices are indexes into the limits; bytes.
 */
#ifndef CONTEXT_SIZE_H
#define CONTEXT_SIZE_H

#include <stdint.h>

#include "memory/nvml_memory.h"

/* Around the making of a context. */
struct context_size_sample {
	int wanted; /* its size is not known well enough yet */
	int measured;
	int first; /* nothing of this process was there before */
	struct nvml_memory_reading before;
	uint64_t card_free, used;
};
void context_size_begin(struct context_size_sample *s, int device, int first);

/*
 * The context was made; `alone`: the container made and ended no other one meanwhile. 1 when NVML
 * was seen to list this process with its first context, and not before.
 */
int context_size_end(const struct context_size_sample *s, int device, int alone);

/*
 * A context that was made behind our back: all this process has there beyond its data is taken
 * for it.
 */
void context_size_learn_existing(int device);

#endif
