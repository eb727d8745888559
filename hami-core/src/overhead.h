/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overhead.h: device memory that nobody asks for by size: contexts, loaded code, what a
 * context sets aside. It is charged like data and never refused, since a program cannot
 * start without it: a limit below a context's size leaves room for nothing else.
 *
 * A context: its cost is measured for the first ones of a container and kept in the region.
 * By preference it is what NVML says of this process; where NVML does not know it, the card's
 * free memory before and after, less what the container took meanwhile, the smallest of
 * three, from the second on. All else (code, also that loaded at a first launch; padding) is what NVML says beyond
 * contexts and data, looked at when code was loaded and from time to time. Where NVML does not
 * know this process it is not charged: another tenant's allocation would count as ours. So it is where NVML's list has this
 * process's PID before it has made a context, or with more than code can take: then that is another process, of the host.
 */
#ifndef OVERHEAD_H
#define OVERHEAD_H

#include <stdint.h>

#include "cuda_abi.h"

/* Around the driver's making of a context on a device. */
struct context_making {
	int device; /* index in the limits, -1: not accounted */
	int wanted; /* its size is not known well enough yet */
	int measured, listed;
	int first; /* nothing of this process was there before */
	unsigned serial;
	uint64_t own, data, card_free, used;
};
void overhead_context_begin(struct context_making *m, CUdevice ordinal);
CUresult overhead_context_end(struct context_making *m, CUresult result, CUcontext context);

/* A context is in use that may have been made without our knowledge. Cheap when it is known. */
void overhead_seen(int device, CUcontext context);
/* It was destroyed, with all code in it. */
void overhead_context_gone(CUcontext context);
/* Corrects what is charged by what is known today: for when somebody asks, or is about to be refused. */
void overhead_settle(int device);

/* Around a call that loads code, or sets memory of the current context aside. */
struct code_loading {
	int device; /* index in the limits, -1: not accounted */
	size_t card_free;
};
void overhead_code_begin(struct code_loading *l);
CUresult overhead_code_end(struct code_loading *l, CUresult result);
/* After code was unloaded. */
void overhead_code_gone(void);

/* In a child after fork. */
void overhead_after_fork(void);

#endif
