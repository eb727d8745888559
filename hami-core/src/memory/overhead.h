/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overhead.h: device memory that nobody asks for by size: contexts, loaded code, what a
 * context sets aside. It is charged like data and never refused, since a program cannot
 * start without it: a limit below a context's size leaves room for nothing else.
 *
 * A context's size is context_size.h's. All else (code, also that loaded at a first launch;
 * padding) is what NVML says beyond contexts and data, looked at when code was loaded and from time
 * to time.
 * Where NVML does not know this process it is not charged: another tenant's allocation would count
 * as ours. So it is where NVML's list has this process's PID before it has made a context, or with
 * more than code can take: then that is another process, of the host.
 */
#ifndef OVERHEAD_H
#define OVERHEAD_H

#include <stdint.h>

#include "cuda_abi.h"
#include "memory/context_size.h"
#include "model/table.h"

/* Around the driver's making of a context on a device. */
struct context_creation {
	int device; /* index in the limits, -1: not accounted */
	unsigned serial;
	struct context_size_sample size_sample;
};
void overhead_add_context_begin(struct context_creation *m, CUdevice ordinal);
CUresult overhead_add_context_end(struct context_creation *m, CUresult result, CUcontext context);

/*
 * The calling thread's device, as settings_current_device tells it, and the context whose memory it
 * uses; counts that context if it is new. Asks the driver once where nothing has changed.
 */
int overhead_note_current(CUcontext *owner);
/* A number that changes whenever a context is about to go, or has gone. */
unsigned overhead_epoch(void);
/* A context is in use that may have been made without our knowledge. Cheap when it is known. */
void overhead_note_context(int device, CUcontext context);
/*
 * Around the driver's destruction of a context, with all code in it. It is taken out of the books'
 * lists before, since another thread may be given the same context again, and threads ask anew
 * which context is theirs.
 */
struct context_removal {
	int found;
	struct table_entry entry;
};
void overhead_remove_context_begin(struct context_removal *l, CUcontext context);
void overhead_remove_context_end(const struct context_removal *l, int gone);
/*
 * Corrects what is charged by what is known now: for when somebody asks, or is about to be
 * refused.
 */
void overhead_reconcile(int device);

/* Around a call that loads code, or sets memory of the current context aside. */
struct code_load {
	int device; /* index in the limits, -1: not accounted */
	size_t card_free;
	uint64_t beyond; /* what was charged before that is neither data nor a context */
};
void overhead_code_begin(struct code_load *l);
CUresult overhead_code_end(struct code_load *l, CUresult result);
/*
 * After the load of an image of so many bytes: what it has taken that the image does not explain,
 * when that and what such loads took before are too much for the limit; else 0.
 */
uint64_t overhead_code_excess(struct code_load *l, uint64_t image_bytes);
/* After code was unloaded. */
void overhead_code_unloaded(void);

/* In a child after fork. */
void overhead_after_fork(void);

#endif
