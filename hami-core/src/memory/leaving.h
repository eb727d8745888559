/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaving.h: memory that goes, one allocation at a time or all of a context at once.
 * It is taken out of the books before the driver's call and credited after it. Thread-safe.
 */
#ifndef LEAVING_H
#define LEAVING_H

#include "cuda_abi.h"
#include "memory/overhead.h"
#include "model/table.h"

/* Around the driver's freeing of an address: begin, call, end with its answer. */
struct freeing {
	int found; /* 0: not ours to account */
	struct table_entry entry;
};
void free_begin(struct freeing *f, CUdeviceptr address);
CUresult free_end(struct freeing *f, CUresult result);

/* Around the driver's destruction of a context: what goes with it. */
struct departing {
	CUcontext context;
	struct table_entry *gone[4]; /* plain, arrays, imports, overflow */
	struct aside *aside;
	struct context_leaving overhead;
};
void departing_begin(struct departing *d, CUcontext context);
CUresult departing_end(struct departing *d, CUresult result);

#endif
